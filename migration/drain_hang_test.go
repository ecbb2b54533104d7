package migration

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/nodetest"
)

// hanging is Spark's layout on disks of which one stops answering amid a look.
type hanging struct {
	inventory.SparkLayout
	looks atomic.Int32
	hangs func(look, item int) bool
	freed chan struct{}
}

func (l *hanging) Scan(ctx context.Context, s *inventory.Store, part int, before inventory.Past, yield func(inventory.Item, error) bool) bool {
	look, item := int(l.looks.Add(1)), 0
	return l.SparkLayout.Scan(ctx, s, part, before, func(it inventory.Item, err error) bool {
		if item++; l.hangs(look, item) {
			<-l.freed
		}
		return yield(it, err)
	})
}

// cachedOnTwo is a node with that many cached partitions of Spark on each of two disks.
func cachedOnTwo(t testing.TB, first, second int) (*node, *nodetest.Disks) {
	n, f := onDisks(t, "a", []inventory.StoreConfig{with(sparkStore, "s0", "s1")}, "v")
	for disk, count := range []int{first, second} {
		for i := range count {
			name := fmt.Sprintf("rdd_%d_%d", disk, i)
			write(t, filepath.Join(n.Dir, fmt.Sprint("s", disk), fmt.Sprint("blockmgr-", disk), "00", name), contentOf(name, 1000))
		}
	}
	return n, f
}

// A disk of a Spark store hangs during the first look. The blocks on the other disk that the look had not met yet are sent, each
// once.
func TestDiskThatHangsAmidTheFirstLookHoldsUpNoOther(t *testing.T) {
	n, f := cachedOnTwo(t, 20, 5)
	b := newNode(t, "b")
	synctest.Test(t, func(t *testing.T) {
		f.News = make(chan struct{})
		sleepPastChanges(t, n)
		silent, l := n.Stores[0].Paths[1], &hanging{freed: make(chan struct{})}
		l.hangs = func(look, item int) bool {
			if look == 1 && item == 8 {
				f.Set(f.Bad, silent, true)
			}
			return look == 1 && item == 8
		}
		n.Stores[0].Shape = l
		sum, entries := newTrip(t, n, b).run(within(t, time.Minute))
		close(l.freed)
		synctest.Wait()
		moved, lost := outcome(t, entries, manifest.Moved), outcome(t, entries, manifest.Lost)
		if len(moved) != 20 || sum.Moved.Blocks != 20 || len(b.LandedBlocks()) != 20 {
			t.Errorf("%d moved, %d in the account, %d landed, want the 20 of the disk that answers, each once", sum.Moved.Blocks, len(moved), len(b.LandedBlocks()))
		}
		if e := lost["(what lies in "+silent+")"]; e.Reason != "disk "+silent+" does not answer" || len(lost) != 1 {
			t.Errorf("lost %v, want what lies on the disk that does not answer", lost)
		}
	})
}

// Two later looks hang, one after the other. What was written before them is sent all the same, once a look goes through.
func TestWhatALookThatHangsHasNotMetIsMetByTheNext(t *testing.T) {
	for _, hung := range []int{1, 2} {
		n, f := cachedOnTwo(t, 3, 1)
		b, now := newNode(t, "b"), time.Now()
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(now)) // files get times of the real clock, so the bubble's clock is moved there
			f.News = make(chan struct{})
			silent, l := n.Stores[0].Paths[1], &hanging{freed: make(chan struct{})}
			l.hangs = func(look, item int) bool {
				if look == 2 && item == 1 {
					f.Set(f.Bad, silent, true)
				}
				return look > 1 && look < 2+hung && item == 1
			}
			n.Stores[0].Shape = l
			tr := newTrip(t, n, b)
			tr.cfg.Peers = after(5*time.Second, tr.cfg.Peers) // till then there is no second look
			time.AfterFunc(time.Second, func() {
				write(t, filepath.Join(n.Stores[0].Paths[0], "blockmgr-0", "00", "rdd_9_9"), contentOf("new", 10))
			})
			_, entries := tr.run(within(t, 10*time.Minute))
			close(l.freed)
			synctest.Wait()
			if e := outcome(t, entries, manifest.Moved)["spark/blockmgr-0/rdd_9_9"]; e.Peer != "b" {
				t.Errorf("%d looks hung: what was written amid the drain was not moved: %v", hung, entries)
			}
		})
	}
}

// The disk that the vault's catalog is on hangs under a read, which nobody told the drain of before. What is written to the stores meanwhile is
// met by the next look all the same, and what lies in the vault is named. An earlier drain moved a block of that: nobody knows that it is gone.
func TestCatalogThatHangsUnderAReadHoldsUpNoLook(t *testing.T) {
	a, f := onDisks(t, "a", []inventory.StoreConfig{with(filesStore, "s0")}, "v")
	wantDurable(t, landAll(t, a, blockFrames(1, "cache/-/landed", contentOf("landed", 1000))))
	a.receiver = nil
	write(t, filepath.Join(a.Dir, "s0", "early"), contentOf("early", 1000))
	b := newNode(t, "b")
	tr := newTrip(t, a, b)
	tr.cfg.Adopted = true
	write(t, manifest.Path(tr.cfg.Dir, manifest.Moved), manifest.Entry{ID: "cache/-/landed", Bytes: 1000, Outcome: manifest.Moved, Peer: "b", Version: "@7"}.AppendLine(nil))
	thaw := nodetest.HangMeta(a.Vault.Catalog)
	defer func() {
		thaw()
		for tr.drain.survey.inVault.Load() { // the look that was left behind ends before its store is closed
			runtime.Gosched()
		}
	}()
	f.Set(f.Bad, a.Vault.Dir, true)
	time.AfterFunc(2*time.Second, func() { write(t, filepath.Join(a.Dir, "s0", "late"), contentOf("late", 1000)) })
	_, entries := tr.run(within(t, diskio.Overdue+4*time.Second))
	moved, lost := outcome(t, entries, manifest.Moved), outcome(t, entries, manifest.Lost)
	if len(moved) != 3 {
		t.Errorf("moved %v, want what lies in the store, and what was moved before", moved)
	}
	for _, dir := range a.Vault.Paths() {
		if e := lost["(what lies in "+dir+")"]; e.Reason != "disk "+a.Vault.Dir+" does not answer" {
			t.Errorf("of %s got %+v", dir, e)
		}
	}
}

// Of a file in a store where blocks of others land in place, the catalog knows whether it came from another node. A read of the catalog that
// hangs holds up neither the look that asks nor the lanes: what lies in the store leaves all the same, as this node's own.
func TestStoreIsReadThoughTheCatalogHangsUnderARead(t *testing.T) {
	for name, known := range map[string]bool{"known": true, "feared": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, f := onDisks(t, "a", []inventory.StoreConfig{with(placeStore, "s0")}, "v")
			wantDurable(t, landAll(t, a, blockFrames(1, "cache/-/landed", contentOf("landed", 1000))))
			a.receiver = nil
			for i := range 20 {
				name := fmt.Sprint("own-", i)
				write(t, filepath.Join(a.Dir, "s0", name), contentOf(name, 1000))
			}
			tr := newTrip(t, a, newNode(t, "b"))
			thaw := nodetest.HangMeta(a.Vault.Catalog)
			defer func() {
				thaw()
				for tr.drain.survey.inVault.Load() || tr.drain.source.held.Load() > 0 { // what was left behind ends before its store is closed
					runtime.Gosched()
				}
			}()
			f.Set(f.Bad, a.Vault.Dir, known)
			tr.cfg.Wary = !known
			_, entries := tr.run(within(t, 5*diskio.Suspect))
			moved := outcome(t, entries, manifest.Moved)
			for i := range 20 {
				if id := fmt.Sprint("cache/-/own-", i); moved[id].Peer != "b" {
					t.Fatalf("%s was not moved: %v", id, entries)
				}
			}
		})
	}
}
