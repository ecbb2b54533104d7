package coordinator

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/lifeboat/lifeboat/api"
)

// A manifest is the same file whether its entries came one by one or in runs.
func TestManifestOfRunsIsTheSameFile(t *testing.T) {
	inTown(t, func(v *town) {
		entries := []*api.ManifestEntry{
			{Id: "(12 blocks)", Bytes: 12, Outcome: "lost", Reason: "the disk hangs"},
			{Id: "(what lies in /data)", Outcome: "lost", Reason: "the disk hangs"},
			{Id: "spark/app/x", Outcome: "lost", Reason: "deadline"},
			{Id: "spark/app/<é>", Bytes: 1, Outcome: "skipped", Reason: "not a block"},
		}
		for i := range 3 * maxBlocks / 2 {
			entries = append(entries, &api.ManifestEntry{Id: fmt.Sprintf("spark/app-%d/d/x%d", i%7000/1000, i), Bytes: int64(i), Outcome: "moved", Peer: fmt.Sprint("b", i/100%3)})
		}
		var files [2][]byte
		for i, name := range []string{"a", "b"} {
			n := v.agent(name)
			n.register()
			said := []*api.GoodbyeRequest{{Summary: &api.ManifestSummary{Node: name, Incarnation: n.incarnation, Incident: "inc"}}}
			for batch := range slices.Chunk(entries, maxBlocks) {
				r := &api.GoodbyeRequest{Entries: batch}
				if i == 1 {
					r = &api.GoodbyeRequest{Entries: batch[:2], Runs: runsOf(batch[2:])} // single entries and runs may be mixed
				}
				said = append(said, r)
			}
			if err := says(n, said...); err != nil {
				v.Fatal(err)
			}
			dir := filepath.Join(v.cfg.DataDir, "manifests")
			kept, err := filepath.Glob(filepath.Join(dir, name+"-*"))
			if err != nil || len(kept) != 1 {
				v.Fatalf("got files %v, %v, want one", kept, err)
			}
			data, err := os.ReadFile(kept[0])
			if err != nil {
				v.Fatal(err)
			}
			_, files[i], _ = bytes.Cut(data, []byte("\n"))
		}
		if bytes.Count(files[0], []byte("\n")) != len(entries) || !bytes.Equal(files[0], files[1]) {
			v.Errorf("got %d lines from entries and %d from runs, want the same %d", bytes.Count(files[0], []byte("\n")), bytes.Count(files[1], []byte("\n")), len(entries))
		}
		v.located("spark/app/x", "lost")
	})
}

func runsOf(entries []*api.ManifestEntry) (runs []*api.ManifestRun) {
	for _, e := range entries {
		if last := len(runs) - 1; last >= 0 && runs[last].Peer == e.Peer && runs[last].Outcome == e.Outcome && runs[last].Reason == e.Reason && runs[last].Blocks.Add(e.Id, e.Bytes) {
			continue
		}
		runs = append(runs, &api.ManifestRun{Outcome: e.Outcome, Peer: e.Peer, Reason: e.Reason, Blocks: api.NewBlockRun(e.Id, e.Bytes)})
	}
	return runs
}

// Landed blocks are located whether they were reported one by one or in runs, and those that the same message calls gone are gone.
func TestRunsAreLocated(t *testing.T) {
	inTown(t, func(v *town) {
		b := v.agent("b")
		b.register()
		b.beat()
		run := api.NewBlockRun("spark/app/x", 1)
		if !run.Add("spark/app/dir/y", 2) || run.Add("spark/app2/z", 3) || run.Add("spark/app", 3) {
			v.Fatal("a run takes the blocks of its scope and no others")
		}
		r := &api.ReportBlocksRequest{
			Node: "b", Incarnation: b.incarnation, Full: true,
			Landed: []*api.HeldBlock{{Id: "spark/app/alone", Bytes: 4, From: "a"}},
			Runs:   []*api.HeldRun{{From: "a", Blocks: run}, {From: "c", Blocks: api.NewBlockRun("spark/app/gone", 1)}},
			Gone:   []string{"spark/app/gone"},
		}
		if err := reports(b, r); err != nil {
			v.Fatal(err)
		}
		for _, id := range []string{"spark/app/x", "spark/app/dir/y", "spark/app/alone"} {
			v.located(id, "held", "b")
		}
		v.located("spark/app/gone", "unknown")
		v.lists("b", "spark/app/alone held [b] a", "spark/app/dir/y held [b] a", "spark/app/x held [b] a")
	})
}

// Whatever bytes a goodbye has, it is refused, or its file can be read again.
func FuzzGoodbye(f *testing.F) {
	seed := func(r *api.GoodbyeRequest) {
		data, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	seed(&api.GoodbyeRequest{Entries: []*api.ManifestEntry{{Id: "s/a/x", Outcome: "moved", Peer: "b"}}, Runs: []*api.ManifestRun{{Outcome: "lost", Reason: "é", Blocks: api.NewBlockRun("(2 blocks)", 2)}}})
	for _, run := range badRuns() {
		seed(&api.GoodbyeRequest{Runs: []*api.ManifestRun{{Outcome: "moved", Blocks: run}}})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := new(api.GoodbyeRequest)
		if proto.Unmarshal(data, r) != nil || checkManifest(r) != nil {
			return
		}
		n := 0
		for e := range entriesOf(r) {
			n++
			if err := checkEntry(e); err != nil {
				t.Error(err)
			}
			if line := entryFrom(e).AppendLine(nil); len(line) > maxLine {
				t.Errorf("got a line of %d bytes, want at most %d", len(line), maxLine)
			}
		}
		want := len(r.Entries)
		for _, run := range r.Runs {
			want += len(run.Blocks.Lengths)
		}
		if n != want {
			t.Errorf("got %d entries, want %d", n, want)
		}
	})
}
