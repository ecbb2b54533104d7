package migration

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/manifest"
)

// An account that is copied to another directory goes on there: the drain with it sends no block again, and the
// account counts as old as before.
func TestAccountIsCopied(t *testing.T) {
	_, a, b := drained(t)
	was := filepath.Join(a.Dir, "drain")
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(manifest.Path(was, manifest.Moved), at, at); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "incidents", "inc-1")
	write(t, manifest.Path(to, manifest.Lost), []byte("of one that was left behind\n"))
	if err := os.Remove(manifest.Path(was, manifest.Lost)); err != nil {
		t.Fatal(err)
	}
	if err := manifest.Copy(t.Context(), was, to, 0); err != nil {
		t.Fatal(err)
	}
	if err := manifest.Copy(t.Context(), was, filepath.Join(t.TempDir(), "small"), 100); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("of one that is too large: got %v", err)
	}
	if is, err := os.Stat(manifest.Path(to, manifest.Moved)); err != nil || !is.ModTime().Equal(at) {
		t.Errorf("it is of %v (%v), want %s", is.ModTime(), err, at)
	}
	if _, err := os.Stat(manifest.Path(to, manifest.Lost)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it says more than the other: %v", err)
	}
	before := b.Vault.Count()
	tr := newTrip(t, a, newNode(t, "c"))
	tr.cfg.Dir = to
	if sum, _ := tr.run(t.Context()); sum.Moved.Blocks != before.Blocks || sum.Lost.Blocks > 0 {
		t.Errorf("got %+v, want %d moved by the account", sum, before.Blocks)
	}
}
