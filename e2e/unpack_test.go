package e2e_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A receiver whose store wants files is killed again and again while it makes them. In the end each block is a file with
// its name and its bytes, and nothing else is there.
func TestReceiverKilledWhileItUnpacks(t *testing.T) {
	f := newFleet(t)
	a := f.agent("host-a")
	b := f.agent("host-b")
	stores := fmt.Sprintf("stores: [{name: cache, kind: cache, layout: files, land: place, paths: [%s]}]", b.cache())
	b.reconfigure(stores)
	a.fill(6000, 24<<20)
	f.up()

	a.verb("decommission", "--self", "--timeout", "90s").exits(0)
	a.drained()
	named, amid := 0, 0
	for range 3 {
		for deadline := time.Now().Add(patience); len(b.files(t)) < min(named+50, len(a.blocks)); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d files of %d have their names, and no more come: %+v", named, len(a.blocks), b.status().Unpacking)
			}
		}
		b.kill()
		if named = b.whole(t, a.blocks); named < len(a.blocks) {
			amid++
		}
		t.Logf("killed when %d files of %d had their names", named, len(a.blocks))
		b.start()
	}
	if amid == 0 {
		t.Error("all was unpacked: it was not killed amid that")
	}
	a.allMoved(a.manifest())
	a.kill()
	b.onSocket().serves(t, few(a.blocks, 50))
	f.until(func() error {
		if u, n := b.status().Unpacking, len(b.files(t)); u.Blocks > 0 || n < len(a.blocks) {
			return fmt.Errorf("%d files have their names, and %d blocks wait for theirs", n, u.Blocks)
		}
		return nil
	})
	if got := b.whole(t, a.blocks); got != len(a.blocks) {
		t.Errorf("%d files have their names, want %d", got, len(a.blocks))
	}
	b.onSocket().serves(t, few(a.blocks, 200))
	if held := b.status().Held; held != int64(len(a.blocks)+1) {
		t.Errorf("holds %d blocks, want %d and the account of the drain", held, len(a.blocks))
	}
}

// files returns the files in a node's cache that have their names, without those in the making.
func (n *node) files(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(n.cache(), func(p string, e fs.DirEntry, err error) error {
		switch {
		case os.IsNotExist(err):
			return nil
		case err != nil:
			return err
		case e.IsDir() && e.Name() == ".lifeboat-staging":
			return filepath.SkipDir
		case !e.IsDir():
			paths = append(paths, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// whole checks that each file in a node's cache is one of these blocks, byte for byte, and returns how many there are.
func (n *node) whole(t *testing.T, blocks []block) int {
	t.Helper()
	want := map[string]string{}
	for _, b := range blocks {
		want[filepath.Join(n.cache(), strings.TrimPrefix(b.id, "cache/-/"))] = b.sha256
	}
	files := n.files(t)
	for _, p := range files {
		content, err := os.ReadFile(p)
		if err != nil || sum(content) != want[p] {
			t.Errorf("%s: %d bytes, %v, not what its block is", p, len(content), err)
		}
	}
	return len(files)
}
