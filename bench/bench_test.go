package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/dev/corpus"
)

func TestParse(t *testing.T) {
	o, err := parse([]string{"-rounds", "5", "-corpus", "c,a", "-scale", "0.1"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if o.args != "go run ./bench -rounds 5 -corpus c,a -scale 0.1" {
		t.Errorf("command is %q", o.args)
	}
	want := []size{{name: "c", n: 8, each: 256 << 20 / 10}, {name: "a", n: 2000, each: 64 << 10}}
	if !slices.Equal(o.corpora, want) {
		t.Errorf("got corpora %v, want %v", o.corpora, want)
	}
	if o, err = parse([]string{"-corpus", "d", "-cold"}, io.Discard); err != nil || !o.corpora[0].cold || o.corpora[0].name == "d" {
		t.Errorf("got corpora %v, %v, want one that is not in memory and is told apart", o.corpora, err)
	}
	if o, err = parse([]string{"-corpus", "d", "-scale", "10"}, io.Discard); err != nil || o.corpora[0].n != 2_000_000 {
		t.Errorf("got corpora %v, %v, want two million blocks", o.corpora, err)
	}
	for _, args := range [][]string{{"-corpus", "e"}, {"-rounds", "0"}, {"-scale", "0"}, {"-scale", "21"}, {"now"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v: taken, want an error", args)
		}
	}
}

func TestParseProc(t *testing.T) {
	cpu, err := parseStat("4711 (a (b) c) S 1 4711 4711 0 -1 4194560 100 200 0 0 150 25 10 5 20 0 8 0 999 1 2\n")
	if err != nil || cpu != 1900*time.Millisecond {
		t.Errorf("got %v and error %v, want 1.9s", cpu, err)
	}
	for _, bad := range []string{"", "4711 (x) S 1 2", "4711 (x) S 1 1 1 0 -1 1 1 2 0 0 a 2 1 5 20"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q: taken, want an error", bad)
		}
	}
	rss, err := parseStatus("Name:\tlifeboat\nVmPeak:\t 9 kB\nVmHWM:\t   23040 kB\nVmRSS:\t 1 kB\n")
	if err != nil || rss != 23040<<10 {
		t.Errorf("got %d and error %v, want %d", rss, err, 23040<<10)
	}
	if _, err := parseStatus("Name:\tzombie\n"); err == nil {
		t.Error("a zombie has a peak, want an error")
	}
	if u, err := readUsage(os.Getpid()); err != nil || u.rss == 0 {
		t.Errorf("of this process: got %+v and error %v", u, err)
	}
}

// sample is a trial with known figures: 1 GiB; lifeboat is twice as fast as the rsync daemon and four times as
// fast as rsync over ssh.
func sample() trial {
	t := trial{size: size{name: "a", n: 20_000, each: 1 << 30 / 20_000, all: 1 << 30 / 20_000 * 20_000}, names: []string{ours, inPlace, "rsync daemon", "rsync over ssh", floor}, outcomes: map[string][]outcome{}}
	for round := range 4 {
		d := time.Duration(round+1) * time.Second
		t.outcomes[ours] = append(t.outcomes[ours], outcome{sent: d, durable: d, cpu: d, told: d + time.Second, rss: [2]int64{22 << 20, 21 << 20}})
		t.outcomes[inPlace] = append(t.outcomes[inPlace], outcome{sent: d, durable: d, cpu: d, told: d, unpacking: &unpacking{took: 2 * d, cpu: d, reads: 400 * (round + 1), worst: 7 * time.Millisecond}})
		t.outcomes["rsync daemon"] = append(t.outcomes["rsync daemon"], outcome{sent: d, durable: 2 * d, cpu: 2 * d})
		t.outcomes["rsync over ssh"] = append(t.outcomes["rsync over ssh"], outcome{sent: 3 * d, durable: 4 * d, cpu: 5 * d})
		t.outcomes[floor] = append(t.outcomes[floor], outcome{sent: d / 2, durable: d / 2, cpu: d / 4})
	}
	return t
}

func TestTableFits(t *testing.T) {
	var b bytes.Buffer
	if err := sample().print(&b); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := len(strings.TrimSpace(line)); n > 100 {
			t.Errorf("%d columns, want at most 100: %s", n, line)
		}
	}
	for _, want := range []string{"lifeboat: mutual TLS, durable", "rsync daemon, not synced", "22/21", "[2.00 2.00 2.00 ..]", "lifeboat, land: place",
		"bare stream: mutual TLS, durable       853   0.50       [0.50 0.50 0.50 ..]  0.63   4.00\n", "\nbare stream: 16000 blocks/s.\n",
		"after the last receipt                named, s   files/s       CPU   reads/s  worst ms\nlifeboat, land: place                     5.00      4167      2.50       200       7.0\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "bare stream, not synced") {
		t.Errorf("the floor is there as if its word were not enough:\n%s", b.String())
	}
}

func TestFigures(t *testing.T) {
	all := report{options{args: "go run ./bench"}, []trial{sample()}}.figures()
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var keyed []map[string]any
	if err := json.Unmarshal(b, &keyed); err != nil {
		t.Fatal(err)
	}
	for _, f := range keyed {
		if len(f) != 8 || f["suite"] != "transfer" || f["command"] != "go run ./bench" {
			t.Errorf("figure %v: want the eight stable keys", f)
		}
	}
	find := func(name, peer string) figure {
		i := slices.IndexFunc(all, func(f figure) bool { return f.Name == name && f.Peer != nil && *f.Peer == peer })
		if i < 0 {
			t.Fatalf("no figure of %s against %s in %s", name, peer, b)
		}
		return all[i]
	}
	for peer, want := range map[string]float64{"rsync daemon, plain, syncfs": 2, "rsync daemon, not synced": 1, "rsync over ssh, aes128-gcm, syncfs": 4} {
		if f := find("a throughput", peer); *f.Ratio != want {
			t.Errorf("throughput against %s: ratio %g, want %g", peer, *f.Ratio, want)
		}
	}
	if f := find("a cpu", "rsync over ssh, aes128-gcm, syncfs"); *f.Ratio != 0.2 || f.Value != 2.5 {
		t.Errorf("cpu: got %g and ratio %g, want 2.5 and 0.2", f.Value, *f.Ratio)
	}
}

func TestReadManifest(t *testing.T) {
	from := source{files: corpus.Corpus{Blocks: 2, Bytes: 10}}
	good := `{"started_at":"2026-11-21T10:00:00Z","finished_at":"2026-11-21T10:00:00.5Z","blocks":{"total":2,"moved":2,"lost":0,"skipped":0},"bytes":{"moved":10}}`
	if began, ended, err := readManifest([]byte(good), from, false); err != nil || ended.Sub(began) != 500*time.Millisecond {
		t.Errorf("got %v to %v and error %v, want half a second", began, ended, err)
	}
	more := strings.NewReplacer(`"moved":2`, `"moved":3`, `"moved":10`, `"moved":11`).Replace(good)
	if _, _, err := readManifest([]byte(more), from, true); err != nil {
		t.Errorf("%s, of a node that has the account of another's leave, too: %v", more, err)
	}
	for _, bad := range []string{"null", "", more, strings.Replace(good, `"moved":2`, `"moved":1`, 1), strings.Replace(good, `"moved":10`, `"moved":9`, 1)} {
		if _, _, err := readManifest([]byte(bad), from, false); err == nil {
			t.Errorf("%s: taken, want an error", bad)
		}
	}
}

// TestOthers runs the contenders that lifeboat is compared with on a small corpus, and checks the results.
func TestOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	if err := needs("rsync", "rsync"); err != nil {
		t.Skip(err)
	}
	g, err := newGround(filepath.Join(t.TempDir(), "with a blank"), "")
	if err != nil {
		t.Fatal(err)
	}
	contenders := []contender{rsyncDaemon{}, testBareStream(t, g.dir)}
	if err := needs("nc", "netcat-openbsd"); err != nil {
		t.Log(err)
	} else {
		contenders = append(contenders, tarPipe{})
	}
	if err := needSSH(false); err != nil {
		t.Log(err)
	} else if ssh, err := newRsyncSSH(t.Context(), g.dir); err != nil {
		t.Fatal(err)
	} else {
		contenders = append(contenders, ssh)
	}
	from := source{dir: filepath.Join(g.dir, "corpus")}
	if from.files, err = corpus.Even(from.dir, 20, 100_000, 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range contenders {
		into, err := g.fresh()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.move(ctx, from, into)
		if err != nil {
			t.Errorf("%s: %v", c.name(), err)
			continue
		}
		if out.cpu <= 0 || out.sent <= 0 || out.durable < out.sent {
			t.Errorf("%s: got %+v: want times above zero, and durable not before sent", c.name(), out)
		}
		if err := g.empty(into); err != nil {
			t.Error(err)
		}
		if left, err := treeBytes(filepath.Join(into, "data")); left != 0 || err != nil {
			t.Errorf("%s: %d bytes and error %v after emptying, want none", c.name(), left, err)
		}
	}
	if err := g.close(); err != nil {
		t.Error(err)
	}
}

// A misspelt contender is an error: it is not left out in silence.
func TestChosenContenders(t *testing.T) {
	names := func(all []contender) (names []string) {
		for _, c := range all {
			names = append(names, c.name())
		}
		return names
	}
	all := func() []contender { return []contender{&lifeboat{label: ours}, rsyncDaemon{}, tarPipe{}} }
	for _, c := range []struct{ given, want []string }{
		{nil, names(all())},
		{[]string{"tar over nc"}, []string{ours, "tar over nc"}},
		{[]string{ours}, []string{ours}},
	} {
		if got, err := chosen(all(), c.given); err != nil || !slices.Equal(names(got), c.want) {
			t.Errorf("%q: got %q (%v), want %q", c.given, names(got), err, c.want)
		}
	}
	if _, err := chosen(all(), []string{"tar over nc + syncfs"}); err == nil || !strings.Contains(err.Error(), `"tar over nc"`) {
		t.Errorf("got %v, want the names that there are", err)
	}
}

func TestTableOfValueFits(t *testing.T) {
	rows := ofRounds([]valueRow{
		{Fleet: "30 s, 3 pools, half of the second", Who: "lifeboat, coordinator dead", Nodes: 199, OfPossible: 0.93, OfAll: 0.9, Bytes: 0.6, SentAgain: 0.06, WorstInflow: 9},
		{Fleet: "30 s, 3 pools, half of the second", Who: "lifeboat, coordinator dead", Nodes: 199, OfPossible: 0.95, OfAll: 0.9, Bytes: 0.6, SentAgain: 0.06, WorstInflow: 8},
		{Fleet: "30 s, 3 pools, half of the second", Who: "oldest first, as Spark", Nodes: 199, OfPossible: 0.47, WorstInflow: 20},
	})
	var b bytes.Buffer
	if err := printValue(&b, rows, 2); err != nil {
		t.Fatal(err)
	}
	checkWidth(t, b.String())
	want := "\n30 s, 3 pools, half of the second\n  lifeboat, coordinator dead     199     94.0   90.0   60.0    6.0!       9!\n  oldest first, as Spark"
	if !strings.Contains(b.String(), want) {
		t.Errorf("no %q in:\n%s", want, b.String())
	}
	if f := valueFigures(rows, "x"); len(f) != 3 || f[0].Value != 94 || f[0].Ratio == nil || *f[0].Ratio != 2 {
		t.Errorf("got %+v, want 94 %% of what can be, twice as much as by oldest first", f)
	}
}
