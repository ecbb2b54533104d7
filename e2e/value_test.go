package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A program says which of its blocks are costly. The agent is killed and comes back. A cap and a deadline let only a
// part of the blocks leave, and all costly ones are in that part.
func TestWhatAProgramSaysIsPreciousIsSaved(t *testing.T) {
	f := newFleet(t)
	a, _ := f.agent("host-a", slow), f.agent("host-b")
	dir := filepath.Join(a.cache(), "host-a")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const files, precious = 60, 6
	words := []string{"value"}
	for i := range files {
		name := fmt.Sprintf("f-%02d", i)
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 100<<10), 0o644); err != nil {
			t.Fatal(err)
		}
		if i%10 == 7 {
			words = append(words, "cache/-/host-a/"+name+"=3h")
		}
	}
	f.up()
	a.verb(words...).exits(0).tells("6 blocks")
	a.verb("value", words[1], "elsewhere/-/x=1h").exits(2).tells("value 2 of 2", "no store elsewhere")
	a.kill()
	a.start()
	f.until(func() error {
		if s := a.verb("blocks"); s.code != 0 {
			return fmt.Errorf("lifeboat blocks: %s", s.stderr)
		}
		return nil
	})
	a.verb("blocks").exits(0).tells("VALUE", "3h0m")

	a.verb("decommission", "--self", "--timeout", "16s").exits(0)
	a.drained()
	f.until(a.is("DECOMMISSIONED"))
	m := a.manifest()
	saved := map[string]bool{}
	for _, e := range m.Entries {
		saved[e.ID] = e.Outcome == "moved"
	}
	for _, w := range words[1:] {
		if id := w[:len(w)-len("=3h")]; !saved[id] {
			t.Errorf("%s is lost, which is worth most", id)
		}
	}
	if m.Blocks.Lost == 0 || m.Blocks.Moved < precious {
		t.Errorf("got %+v, want some lost, and more saved than the precious ones", m.Blocks)
	}
}
