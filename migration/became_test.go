package migration

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/manifest"
)

// A block was a file when it was planned, and its name is a directory or a link when its turn comes. It is gone like a deleted file:
// it is not lost, and nothing waits for it.
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
				write(t, filepath.Join(a.Dir, "cache/d/x"), contentOf("x", 1000))
				tr := newTrip(t, a, b)
				tr.cfg.Peers = after(2*time.Second, tr.cfg.Peers)
				time.AfterFunc(time.Second, func() {
					if err := change(filepath.Join(a.Dir, "cache")); err != nil {
						t.Error(err)
					}
				})
				began := time.Now()
				sum, entries := tr.run(within(t, time.Minute))
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("took %v", took)
				}
				if e := outcome(t, entries, manifest.Skipped)["cache/-/d/x"]; e.Reason != "deleted while the node was draining" || sum.Lost.Blocks > 0 {
					t.Errorf("got %v", entries)
				}
			})
		})
	}
}

// The first of a store's directories that has a file hides files of that name in the others. A directory or a link hides none.
func TestOnlyFilesHideFiles(t *testing.T) {
	a, b := newNode(t, "a", with(filesStore, "c0", "c1")), newNode(t, "b")
	write(t, filepath.Join(a.Dir, "c0/dir/y"), contentOf("y", 1000))
	write(t, filepath.Join(a.Dir, "c1/dir"), contentOf("dir", 1000))
	write(t, filepath.Join(a.Dir, "c1/link"), contentOf("link", 1000))
	if err := os.Symlink("dir/y", filepath.Join(a.Dir, "c0/link")); err != nil {
		t.Fatal(err)
	}
	_, entries := a.drain(t, within(t, time.Minute), b)
	want := map[string][]byte{"cache/-/dir/y": contentOf("y", 1000), "cache/-/dir": contentOf("dir", 1000), "cache/-/link": contentOf("link", 1000)}
	moved := map[string]string{}
	for _, e := range entries {
		if e.Outcome == manifest.Moved {
			moved[e.ID] = e.Peer
		}
	}
	for id, content := range want {
		if moved[id] != "b" || !bytes.Equal(b.Content(t, id), content) || !bytes.Equal(a.Content(t, id), content) {
			t.Errorf("%s: the account has %v", id, entries)
		}
	}
}

// A block changes and then becomes what it was, as when a change is rolled back. It is sent once more, because the peer has the
// version in between.
func TestBlockThatBecomesWhatItWasIsNews(t *testing.T) {
	a := newNode(t, "a", with(filesStore, "cache"))
	d := NewDrain(newTrip(t, a).cfg)
	x := filepath.Join(a.Stores[0].Paths[0], "x")
	for pass, change := range []func() error{
		func() error { return os.WriteFile(x, []byte("one"), 0o644) },
		func() error {
			return errors.Join(os.Rename(x, x+".tmp"), os.WriteFile(x, []byte("two, longer"), 0o644))
		},
		func() error { return os.Rename(x+".tmp", x) },
		func() error { return nil },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		want := 1
		if pass == 3 {
			want = 0
		}
		if n := d.survey.scan(t.Context(), pass); n != want {
			t.Errorf("look %d found %d, want %d", pass, n, want)
		}
	}
}
