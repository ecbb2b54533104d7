package coordinator

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/blockmap"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

func TestBlocksAreLocated(t *testing.T) {
	inTown(t, func(v *town) {
		a, b, c := v.agent("a"), v.agent("b"), v.agent("c")
		a.register()
		b.register()
		c.register()
		const x, y, z = "spark/app/x", "spark/app/y", "spark/app/z"
		b.report(true, x, y)
		c.report(false, x)
		v.located(x, "held", "b", "c")
		v.located(z, "unknown")
		r, err := a.Locate(v.Context(), &api.LocateRequest{Id: z})
		if err != nil || len(r.Candidates) != 3 {
			v.Errorf("got %v, %v, want the three nodes that have a store spark to ask", r, err)
		}
		_, err = a.Locate(v.Context(), &api.LocateRequest{Id: "x"})
		v.refused(err, codes.InvalidArgument, "STORE/SCOPE/NAME")

		if err := reports(b, &api.ReportBlocksRequest{Node: "b", Incarnation: b.incarnation, Gone: []string{y}}); err != nil {
			v.Fatal(err)
		}
		v.located(y, "unknown")
		b.report(true, y) // all that it holds
		v.located(x, "held", "c")

		a.goodbye("inc1", &api.ManifestEntry{Id: x, Outcome: "moved", Peer: "b"}, &api.ManifestEntry{Id: z, Bytes: 3, Outcome: "lost", Reason: "deadline"})
		v.located(z, "lost")
		v.lists("", "spark/app/y held [b] gone", "spark/app/x held [c] gone", "spark/app/z lost [] a")
		v.lists("a", "spark/app/z lost [] a")

		v.restart()
		v.located(z, "lost")
		v.located(x, "unknown")
		a.beat()
		b.beat()
		c.beat()
		c.report(true, x)
		v.located(x, "held", "c")

		b.live(31)
		v.is("c", registry.Lost)
		v.located(x, "lost") // as far as we know
		c.beat()
		v.located(x, "held", "c")
		c.incarnation = "another machine"
		c.register()
		v.located(x, "unknown")

		a.register() // it came back, and z with it
		v.is("a", registry.Active)
		v.located(z, "unknown")
		v.restart()
		v.located(z, "unknown")
	})
}

// A block that broke at its holder is lost once its source is gone: Locate and the list of blocks say the same.
func TestBrokenBlockOfAGoneNodeIsListedAsLost(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		a.register()
		b.register()
		const x, y = "spark/app/x", "spark/app/y"
		report := func(r *api.ReportBlocksRequest) {
			v.Helper()
			r.Node, r.Incarnation = "b", b.incarnation
			if err := reports(b, r); err != nil {
				v.Fatal(err)
			}
		}
		landed := func(id string) *api.HeldBlock { return &api.HeldBlock{Id: id, From: "a", Bytes: 7} }
		report(&api.ReportBlocksRequest{Landed: []*api.HeldBlock{landed(x), landed(y)}})
		report(&api.ReportBlocksRequest{Broken: []*api.HeldBlock{landed(x)}})
		v.located(x, "unknown")
		v.lists("", y+" held [b] a") // a has x itself
		b.live(31)
		v.is("a", registry.Lost)
		v.located(x, "lost")
		v.lists("", y+" held [b] a", x+" lost [] a")
		v.lists("a", x+" lost [] a")
		report(&api.ReportBlocksRequest{Landed: []*api.HeldBlock{landed(x)}})
		v.lists("", x+" held [b] a", y+" held [b] a")
	})
}

// A node carried blocks away and stays after all, and the receiver is gone: the blocks, which the node still has, are not lost.
func TestBlockOfANodeThatStaysIsNotListedAsLost(t *testing.T) {
	inTown(t, func(v *town) {
		a, b, c := v.agent("a"), v.agent("b"), v.agent("c")
		a.register()
		b.register()
		c.register()
		const x, y, z = "spark/app/x", "spark/app/y", "spark/app/z"
		a.notice("inc1", time.Minute)
		a.announce()
		landed := []*api.HeldBlock{{Id: x, From: "a", Bytes: 7}, {Id: y, From: "gone", Bytes: 7}, {Id: z, From: "c", Bytes: 7}} // c has a disk that dies
		if err := reports(b, &api.ReportBlocksRequest{Node: "b", Incarnation: b.incarnation, Landed: landed}); err != nil {
			v.Fatal(err)
		}
		a.goodbye("inc1", &api.ManifestEntry{Id: x, Bytes: 7, Outcome: "moved", Peer: "b"})
		a.status.Notice = nil
		if _, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}}); err != nil {
			v.Fatal(err)
		}
		v.lists("", x+" held [b] a", y+" held [b] gone", z+" held [b] c")
		v.order(10*time.Second, "b")
		for range 31 {
			c.beat()
			a.live(1)
		}
		v.is("b", registry.Decommissioned)
		v.lists("", y+" lost [] gone", z+" lost [] c")
		a.incarnation = "another machine"
		a.register()
		v.lists("", x+" lost [] a", y+" lost [] gone", z+" lost [] c")
	})
}

// A machine named a block as lost, came back with it, and then put it into the fallback. Another machine under its name makes neither the
// list of blocks nor Locate fall back on the first of these accounts.
func TestBlockOfAReplacedMachineInTheFallbackIsNotLost(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		const x = "spark/app/x"
		leave := func(incident string, e *api.ManifestEntry) {
			a.notice(incident, time.Minute)
			a.announce()
			a.goodbye(incident, e)
		}
		leave("inc1", &api.ManifestEntry{Id: x, Bytes: 7, Outcome: "lost", Reason: "no peer"})
		v.lists("", x+" lost [] a")
		a.status.Notice = nil
		if _, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}}); err != nil {
			v.Fatal(err)
		}
		leave("inc2", &api.ManifestEntry{Id: x, Bytes: 7, Outcome: "moved", Peer: "fallback:spill"})
		v.lists("")
		a.incarnation = "another machine"
		a.register()
		v.lists("")
		v.located(x, "unknown")
		v.restart()
		v.lists("")
	})
}

// Blocks for which a rehearsal was too short are at a node that stays: they are not called lost, and no alert fires.
func TestRehearsalLosesNothing(t *testing.T) {
	inTown(t, func(v *town) {
		const x = "spark/app/x"
		counted := func(want int64) {
			v.Helper()
			if s, err := v.operator().GetStatus(v.Context(), &api.GetStatusRequest{}); err != nil || s.BlocksLost != want {
				v.Errorf("got %d blocks lost, %v, want %d", s.GetBlocksLost(), err, want)
			}
		}
		a := v.agent("a")
		a.register()
		a.notice("inc1", time.Minute)
		a.status.Notice.Source = registry.Pretended
		a.announce()
		a.goodbye("inc1", &api.ManifestEntry{Id: x, Bytes: 7, Outcome: "lost", Reason: "deadline"})
		counted(0)
		v.lists("")
		v.located(x, "unknown")
		stream, err := v.operator().Events(v.Context(), &api.EventsRequest{Types: []string{registry.EventDecommissioned}})
		if err != nil {
			v.Fatal(err)
		}
		if e, err := stream.Recv(); err != nil || e.Data["lost"] != "1" || e.Data["rehearsal"] != "yes" {
			v.Errorf("got %v, %v, want to be told that it is a rehearsal's", e, err)
		}
		a.live(1)
		a.notice("inc2", time.Minute)
		a.announce()
		a.goodbye("inc2", &api.ManifestEntry{Id: x, Bytes: 7, Outcome: "lost", Reason: "deadline"})
		counted(1)
		v.lists("", x+" lost [] a")
	})
}

func (v *town) lists(node string, want ...string) {
	v.Helper()
	got, err := listed(v, node)
	if err != nil {
		v.Fatal(err)
	}
	if !slices.Equal(got, want) {
		v.Errorf("blocks of %q: got %q, want %q", node, got, want)
	}
}

func listed(v *town, node string) (blocks []string, err error) {
	for r, err := range api.Received(v.operator().ListBlocks(v.Context(), &api.ListBlocksRequest{Node: node})) {
		if err != nil {
			return blocks, err
		}
		for _, b := range r.Blocks {
			blocks = append(blocks, fmt.Sprint(b.Id, " ", b.State, " ", b.Holders, " ", b.From))
		}
	}
	return blocks, nil
}

// A drained node serves its blocks for as long as its machine lives.
func TestDrainedHolderIsReadWhileItAnswers(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		a.register()
		b.register()
		a.report(true, "spark/app/x", "spark/app/y")
		b.report(true, "spark/app/x")
		v.order(time.Hour, "a")
		a.goodbye("inc1")
		v.located("spark/app/x", "held", "b", "a") // the node that stays comes first
		v.located("spark/app/y", "held", "a")
		b.live(31)
		v.is("a", registry.Decommissioned)
		v.located("spark/app/x", "held", "b")
		v.located("spark/app/y", "lost")
	})
}

func TestManifestIsKept(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		_, err := manifestOf(v, "a")
		v.refused(err, codes.NotFound, "has not said goodbye")

		var entries []*api.ManifestEntry
		for i := range 2*listBatch + 1 {
			entries = append(entries, &api.ManifestEntry{Id: fmt.Sprintf("spark/app/<%d>&", i), Bytes: int64(i), Outcome: []string{"moved", "lost", "skipped"}[i%3], Reason: "r\n"})
		}
		a.goodbye("inc1", entries...)
		a.goodbye("inc1", entries...) // the reply was lost

		// Files that a crash left are removed.
		dir := filepath.Join(v.cfg.DataDir, "manifests")
		for _, name := range []string{".partial-a-x.jsonl", "a-unnamed.jsonl"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("{}\n"), 0o600); err != nil {
				v.Fatal(err)
			}
		}
		v.restart()
		if files, _ := os.ReadDir(dir); len(files) != 1 {
			v.Errorf("got files %v, want the one that counts", files)
		}
		got, err := manifestOf(v, "a")
		if err != nil || len(got) != len(entries) {
			v.Fatalf("got %d entries, %v, want %d", len(got), err, len(entries))
		}
		for i := range got {
			if !proto.Equal(got[i], entries[i]) {
				v.Fatalf("entry %d: got %v, want %v", i, got[i], entries[i])
			}
		}
		if n := v.seen("a"); n.Manifest.GetIncident() != "inc1" || n.Manifest.Lost.Blocks == 0 {
			v.Errorf("got manifest %v", n.Manifest)
		}
	})
}

// A restored snapshot refers to manifests that it did not bring along.
func TestManifestWhoseFileIsLostIsNotFound(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		a.goodbye("inc1")
		if err := os.RemoveAll(filepath.Join(v.cfg.DataDir, "manifests")); err != nil {
			v.Fatal(err)
		}
		v.restart()
		_, err := manifestOf(v, "a")
		v.refused(err, codes.NotFound, "no coordinator has it")
	})
}

// Where the files of manifests are gone, the list of blocks has all else, and says whose lost blocks it lacks.
func TestListWithoutAManifestSaysSo(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		a.register()
		b.register()
		a.goodbye("inc1", &api.ManifestEntry{Id: "spark/app/x", Bytes: 7, Outcome: "lost", Reason: "no peer"})
		gone := v.manifestFiles()
		b.goodbye("inc2", &api.ManifestEntry{Id: "spark/app/y", Bytes: 7, Outcome: "lost", Reason: "no peer"})
		for _, file := range gone {
			if err := os.Remove(filepath.Join(v.cfg.DataDir, "manifests", file)); err != nil {
				v.Fatal(err)
			}
		}
		v.restart()
		got, err := listed(v, "")
		if want := []string{"spark/app/y lost [] b"}; !slices.Equal(got, want) {
			v.Errorf("got %q, want %q", got, want)
		}
		v.refused(err, codes.DataLoss, "the manifest of a is not here: what it names as lost is not listed, 1 in all")
	})
}

func manifestOf(v *town, node string) (entries []*api.ManifestEntry, err error) {
	stream, err := v.operator().GetManifest(v.Context(), &api.GetManifestRequest{Node: node})
	for err == nil {
		var r *api.GoodbyeRequest
		if r, err = stream.Recv(); err == nil {
			entries = append(entries, r.Entries...)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return entries, err
}

// A goodbye that breaks off in the middle does not count.
func TestHalfGoodbyeIsNone(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		a.notice("inc1", time.Minute)
		a.announce()
		ctx, cancel := context.WithCancel(v.Context())
		stream, err := a.Goodbye(ctx)
		if err != nil {
			v.Fatal(err)
		}
		if err := stream.Send(&api.GoodbyeRequest{Summary: &api.ManifestSummary{Node: "a", Incarnation: a.incarnation}}); err != nil {
			v.Fatal(err)
		}
		time.Sleep(time.Second)
		cancel()
		time.Sleep(time.Second)
		v.is("a", registry.Decommissioning)
		if files, _ := os.ReadDir(filepath.Join(v.cfg.DataDir, "manifests")); len(files) != 0 {
			v.Errorf("got files %v, want none", files)
		}
	})
}

func FuzzBlockID(f *testing.F) {
	for _, s := range []string{"s/a/x", "s/-/dir/x", "", "/", "//", "s//x", "s/a/", "s/a/\x00", "é/b/c", "s/a/b/../../c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if checkID(s) == nil {
			if got := blockmap.KeyOf(s).ID(); got != s {
				t.Errorf("got %q, want %q", got, s)
			}
		}
	})
}
