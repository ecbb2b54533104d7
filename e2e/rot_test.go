package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// turns flips a bit of a file everywhere where the node keeps landed blocks, once the file is written whole there: end is
// its last 64 bytes. The times of the files stay. It reports whether it found the file.
func (n *node) turns(end []byte) (turned bool) {
	n.f.t.Helper()
	for _, dir := range append(n.spark(), filepath.Join(n.data(), "vault", "segments")) {
		_ = filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || strings.Contains(p, ".lifeboat-staging") {
				return nil // it was removed meanwhile
			}
			b, err := os.ReadFile(p)
			info, gone := os.Stat(p)
			at := bytes.Index(b, end)
			if err != nil || gone != nil || at < 0 {
				return nil
			}
			f, err := os.OpenFile(p, os.O_WRONLY, 0)
			if err != nil {
				return nil
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte{end[63] ^ 1}, int64(at+63)); err != nil {
				n.f.t.Fatal(err)
			}
			if err := os.Chtimes(p, info.ModTime(), info.ModTime()); err != nil {
				n.f.t.Fatal(err)
			}
			turned = true
			return nil
		})
	}
	return turned
}

// While the source leaves, bits flip on the peers' disks after the receipts: one in a segment, one in a file in its place.
// Nobody reads those blocks. The peers find and report them, the source sends them again, and all blocks are there when the
// source is gone.
func TestTurnedBitsAreFoundAndCarriedAgain(t *testing.T) {
	f := newFleet(t)
	a, b, c := f.agent("host-a", "drain: {max_bytes_per_second: 2MiB}"), f.agent("host-b"), f.agent("host-c")
	a.fill(12, 4<<20)
	a.shuffle(2, 8<<20)
	f.up()
	ends := map[string][]byte{
		"in a segment": a.endOf(a.cache(), func(x block) bool { return x.path != "" }),
		"in place":     a.endOf(a.dir, func(x block) bool { return strings.HasSuffix(x.id, ".data") && x.bytes > 1<<20 }),
	}
	a.verb("decommission", "--self", "--timeout", "100s").exits(0)
	for until := time.Now().Add(patience); len(ends) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not found at any peer: what rests %v", slices.Collect(maps.Keys(ends)))
		}
		maps.DeleteFunc(ends, func(_ string, end []byte) bool { return b.turns(end) || c.turns(end) })
	}
	f.until(a.is("DECOMMISSIONED"))
	f.until(func() error {
		n := 0
		for _, e := range f.events() {
			if e.Type == "BlocksBroken" {
				n++
			}
		}
		if n < 2 {
			return fmt.Errorf("%d events tell of broken blocks, want 2", n)
		}
		return nil
	})
	// Blocks share bytes, so a bit may have flipped in another block as well, and that one may not be found yet. Readers
	// find it.
	f.until(func() error { return errors.Join(b.onSocket().served(t, a.blocks), c.onSocket().served(t, a.blocks)) })
	a.located()
	f.until(func() error { // while blocks are sent again, their account is not yet part of the manifest
		if m := a.manifest(); len(m.lost()) != 0 || m.Blocks.Moved != int64(len(a.wholes())) {
			return fmt.Errorf("manifest: got %+v, want all %d moved", m.Blocks, len(a.wholes()))
		}
		return nil
	})
	a.kill()
	b.onSocket().serves(t, a.blocks)
	c.onSocket().serves(t, a.blocks)
}

// endOf returns the last 64 bytes of the first block for which is holds; its file is somewhere below dir.
func (n *node) endOf(dir string, is func(block) bool) (end []byte) {
	n.f.t.Helper()
	i := slices.IndexFunc(n.blocks, is)
	if i < 0 {
		n.f.t.Fatal("no block is so")
	}
	x := n.blocks[i]
	_ = filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Base(p) == filepath.Base(x.id) {
			if b, err := os.ReadFile(p); err == nil && sum(b) == x.sha256 {
				end = b[len(b)-64:]
			}
		}
		return nil
	})
	if end == nil {
		n.f.t.Fatalf("%s is not below %s", x.id, dir)
	}
	return end
}
