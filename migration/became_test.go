package migration

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/wire"
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

// An engine renames another file over a large one that is being read. What was open is the old version, though its size and time are as
// planned: it must not land behind the newer one, which another lane carries meanwhile.
func TestFileThatIsReplacedWhileItIsRead(t *testing.T) {
	a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
	p := filepath.Join(a.Dir, "cache", "x")
	write(t, p, contentOf("old", 40*wire.ChunkBytes))
	now := time.Now()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(now))
		tr := newTrip(t, a, b)
		tr.cfg.MaxBytesPerSecond = 512 << 10 // the large one takes twenty seconds, and the second look comes after ten
		time.AfterFunc(3*time.Second, func() {
			write(t, p+".tmp", contentOf("new", 1000))
			if err := os.Rename(p+".tmp", p); err != nil {
				t.Error(err)
			}
		})
		_, entries := tr.run(within(t, time.Minute))
		wantThere(t, map[string][]byte{"cache/-/x": contentOf("new", 1000)}, entries, b)
	})
}

// planned is a drain that has one block in its plan, whose file is x.
func planned(t *testing.T) (d *Drain, x string) {
	a := newNode(t, "a", with(filesStore, "cache"))
	x = filepath.Join(a.Dir, "cache", "x")
	write(t, x, []byte("old"))
	d = NewDrain(newTrip(t, a).cfg)
	d.survey.scan(t.Context(), 0)
	return d, x
}

// taken is what a lane gets next.
func taken(t *testing.T, d *Drain) plan.Entry {
	t.Helper()
	batch, _, err := d.plan.Take(nil, 1, 1<<20, "b", plan.RoomOf(1<<40), 1<<40, nil)
	if err != nil || len(batch) != 1 {
		t.Fatalf("got %v, %v", batch, err)
	}
	return batch[0]
}

// takenTwice is a drain of a block that changed after a lane had got it: both versions are on their way.
func takenTwice(t *testing.T) (d *Drain, first, second plan.Entry) {
	d, x := planned(t)
	first = taken(t, d)
	write(t, x, []byte("newer"))
	d.survey.scan(t.Context(), 1)
	d.account.ledger.OnceMore()
	return d, first, taken(t, d)
}

// A block changed after it was sent, and the newer version has its receipt when that of the older one comes, from a slower peer. The newer
// one counts.
func TestReceiptOfWhatChangedComesLate(t *testing.T) {
	d, first, second := takenTwice(t)
	d.account.moved("c", []plan.Entry{second})
	d.account.moved("b", []plan.Entry{first})
	sum, err := d.account.close()
	if err != nil {
		t.Fatal(err)
	}
	if e := outcome(t, entriesOf(t, d.cfg.Dir), manifest.Moved)["cache/-/x"]; e.Peer != "c" || e.Bytes != 5 || sum.Moved.Blocks != 1 {
		t.Errorf("got %+v %+v, want the newer version at c to count", sum, e)
	}
	d.plan.Close()
}

// The same at one peer, to which the two went by different connections. It may have received the older one last, which has replaced the newer
// one there then: that is sent again.
func TestReceiptOfWhatChangedComesLateFromTheSamePeer(t *testing.T) {
	d, first, second := takenTwice(t)
	d.account.moved("b", []plan.Entry{second})
	d.account.moved("b", []plan.Entry{first})
	d.plan.Settle(2)
	third := taken(t, d)
	if third.Bytes() != 5 || d.account.progress().Moved.Blocks != 0 {
		t.Errorf("got %+v %+v, want the newer version once more, and nothing moved for good", third, d.account.progress())
	}
	d.account.moved("b", []plan.Entry{third})
	sum, err := d.account.close()
	if err != nil {
		t.Fatal(err)
	}
	if e := outcome(t, entriesOf(t, d.cfg.Dir), manifest.Moved)["cache/-/x"]; e.Bytes != 5 || sum.Moved.Blocks != 1 || sum.Lost.Blocks != 0 {
		t.Errorf("got %+v %+v, want the newer version to count once", sum, e)
	}
	d.plan.Close()
}

// A block that is deleted after it was planned is none that is still to be carried.
func TestDeletedBlockIsNotWaitedFor(t *testing.T) {
	d, x := planned(t)
	e := taken(t, d)
	if err := os.Remove(x); err != nil {
		t.Fatal(err)
	}
	d.account.carryOut(d.account.judge(e, fs.ErrNotExist))
	if p := d.account.progress(); p.Found.Blocks != 0 || p.Found.Bytes != 0 || p.Skipped.Blocks != 1 {
		t.Errorf("got %+v, want one skipped and none found", p)
	}
	d.plan.Close()
}

// A disk hung, so a lane was given up and its block went back to the plan. Then the disk answers the lane's read: the block has changed. That
// lane's ruling is not carried out any more, so the next lane must come to one of its own.
func TestRulingThatNobodyCarriesOut(t *testing.T) {
	d, x := planned(t)
	e := taken(t, d)
	write(t, x, []byte("newer"))
	d.plan.GiveBack(e, 0, "disk does not answer") // the lane was given up
	d.account.judge(e, inventory.ErrChanged)      // and its read came back after that: the books have it no more
	again := taken(t, d)
	d.account.carryOut(d.account.judge(again, inventory.ErrChanged))
	found := d.survey.scan(t.Context(), 1)
	if d.plan.Waiting()["cache"] == 0 {
		t.Errorf("it is neither in the plan nor in the account, and a look found %d", found)
	}
	d.plan.Close()
}
