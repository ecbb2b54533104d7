package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// spill makes a directory that is the fallback of all agents, and returns the line of their files that says so.
func (f *fleet) spill() (dir, line string) {
	f.t.Helper()
	dir = filepath.Join(f.dir, "spill")
	if err := os.Mkdir(dir, 0o755); err != nil {
		f.t.Fatal(err)
	}
	return dir, fmt.Sprintf("fallback: {name: spill, dir: %s}", dir)
}

// No peer has room. The source is killed amid its drain, and again when all is done. Every block is in the fallback, was
// written there once, and can be read through any agent.
func TestSourceKilledWhileItUsesTheFallback(t *testing.T) {
	f := newFleet(t, "lease: 3s")
	dir, line := f.spill()
	a, b := f.agent("host-a", slow, line), f.agent("host-b", noRoom, line)
	a.fill(40, 5<<20)
	a.shuffle(8, 2<<20)
	f.up()

	a.verb("decommission", "--self", "--timeout", "90s").exits(0)
	a.underWay(5)
	a.kill()
	receipted := a.receipted()
	if n := len(receipted); n == 0 || n >= len(a.wholes()) {
		t.Fatalf("%d of %d blocks were receipted before the kill: not amid the drain", n, len(a.wholes()))
	}
	put := map[string]time.Time{}
	for id, peer := range receipted {
		if peer != "fallback:spill" {
			t.Fatalf("%s was receipted by %s, want fallback:spill: nobody else has room", id, peer)
		}
		if info, err := os.Stat(filepath.Join(dir, "lifeboat-blocks/host-a", id)); err == nil { // a block of several files is not at this path
			put[id] = info.ModTime()
		}
	}
	if len(put) == 0 {
		t.Fatal("no receipted block is in the directory")
	}

	a.reconfigure(line)
	a.start()
	a.drained()
	f.until(a.is("DECOMMISSIONED"))
	m := a.manifest()
	if m.Blocks.Lost != 0 || m.Blocks.Moved != int64(len(a.wholes())) {
		t.Errorf("manifest: got %+v, want all of %d moved", m.Blocks, len(a.wholes()))
	}
	for id, at := range put {
		if info, err := os.Stat(filepath.Join(dir, "lifeboat-blocks/host-a", id)); err != nil || !info.ModTime().Equal(at) {
			t.Errorf("%s was put again after the kill (%v)", id, err)
		}
	}
	a.kill()
	b.onSocket().serves(t, a.blocks)
	f.gets(few(a.blocks, 5))
	for _, x := range few(a.blocks, 5) {
		for _, id := range []string{x.id, x.whole} {
			if l := decode[locationView](f.verb("locate", id, "-o", "json").exits(0)); l.State != "held" || len(l.Holders) != 1 || l.Holders[0].Node != "fallback:spill" {
				t.Errorf("locate %s: got %+v, want it in fallback:spill", id, l)
			}
			b.verb("locate", id).exits(0).tells("fallback:spill")
		}
	}
	f.until(func() error { // until the dead node's lease has run out, it may have any block
		if s := f.verb("locate", "cache/-/host-a/never"); s.code != 3 {
			return fmt.Errorf("locate a block that never was: got exit code %d (%s), want 3", s.code, s.stderr)
		}
		return nil
	})
	b.verb("locate", "cache/-/host-a/never").exits(3)

	// A flipped bit is not served.
	x := a.blocks[0]
	path := filepath.Join(dir, "lifeboat-blocks/host-a", x.id)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := b.onSocket().get(t, x.id, ""); sum(got.body) == sum(content) || got.code == 200 && int64(len(got.body)) == x.bytes {
		t.Errorf("a damaged block: status %d and %d bytes, want it cut or refused", got.code, len(got.body))
	}
}

// The fallback's directory is gone: the drain ends in time, and the manifest says why each block is lost.
func TestFallbackThatIsAwayIsNamedInTheManifest(t *testing.T) {
	const lead, tail = 35 * time.Second, 20 * time.Second // a drain that ends in time is done when its tail begins
	f := newFleet(t)
	dir, line := f.spill()
	a, _ := f.agent("host-a", line, fmt.Sprintf("drain: {tail: %s}", tail)), f.agent("host-b", noRoom, line)
	a.fill(5, 1<<20)
	f.up()
	if err := os.Rename(dir, dir+"-unmounted"); err != nil { // by one rename, whatever the agents are doing there
		t.Fatal(err)
	}
	began := time.Now()
	a.verb("decommission", "--self", "--timeout", lead.String()).exits(0)
	a.drained()
	if took := time.Since(began); took > lead {
		t.Errorf("the drain took %v of %v", took, lead)
	}
	f.until(a.is("DECOMMISSIONED"))
	a.namesLost(a.manifest(), "fallback:spill")
	if !strings.Contains(a.logged(), "is it mounted?") {
		t.Error("the log does not say what is wrong")
	}
}
