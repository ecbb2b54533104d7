package receiver

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// onDisk returns what the files below a directory take of their file system.
func onDisk(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// What a block takes in a vault is foreseen: a tiny block takes as much again beside its bytes, and more the longer its name is.
func TestWhatABlockTakes(t *testing.T) {
	const blocks, size = 8000, 500
	for _, name := range []string{"b", strings.Repeat("long/", 40) + "b"} {
		n := newNode(t, "b")
		before, want := onDisk(t, n.Dir), int64(0)
		var frames [][]byte
		for i := range blocks {
			id := inventory.BlockID(fmt.Sprintf("cache/-/%s-%06d", name, i))
			frames = append(frames, blockFrames(uint32(i+1), string(id), contentOf(string(id), size)))
			want += (&inventory.Block{ID: id, Members: []inventory.Member{{Bytes: size}}}).Takes()
		}
		wantDurable(t, landAll(t, n, frames...))
		took := onDisk(t, n.Dir) - before
		t.Logf("ids of %d letters: %d bytes beside each block, foreseen %d", len("cache/-/-000000")+len(name), took/blocks-size, want/blocks-size)
		if off := float64(want) / float64(took); off < 0.85 || off > 1.15 {
			t.Errorf("got %d bytes foreseen, %d taken", want, took)
		}
	}
}
