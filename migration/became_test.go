package migration

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// What was a file when it was planned and is something else when its turn comes is gone, as one is that was deleted: nobody waits
// for it, and it is not lost.
func TestFilesThatBecomeSomethingElse(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"link": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "d/x")), os.Symlink("elsewhere", filepath.Join(dir, "d/x")))
		},
		"directory": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "d/x")), os.Mkdir(filepath.Join(dir, "d/x"), 0o755))
		},
		"below a file": func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "d")), os.WriteFile(filepath.Join(dir, "d.tmp"), nil, 0o644), os.Rename(filepath.Join(dir, "d.tmp"), filepath.Join(dir, "d")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
				write(t, filepath.Join(a.dir, "cache/d/x"), contentOf("x", 1000))
				tr := newTrip(t, a, b)
				tr.cfg.Peers = after(2*time.Second, tr.cfg.Peers)
				time.AfterFunc(time.Second, func() {
					if err := change(filepath.Join(a.dir, "cache")); err != nil {
						t.Error(err)
					}
				})
				began := time.Now()
				sum, entries := tr.run(within(t, time.Minute))
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("took %v", took)
				}
				if e := outcome(t, entries, Skipped)["cache/-/d/x"]; e.Reason != "deleted while the node was draining" || sum.Lost.Blocks > 0 {
					t.Errorf("got %v", entries)
				}
			})
		})
	}
}
