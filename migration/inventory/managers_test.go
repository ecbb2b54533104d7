package inventory

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// hangingDisks hangs when it is asked about a disk for the first time, as a look at that disk would.
type hangingDisks struct {
	*silentDisks
	path  string
	asked *atomic.Bool
	hangs chan struct{} // closed from then on
	until chan struct{}
}

func (h hangingDisks) Readable(p string) bool {
	if p == h.path && h.asked.CompareAndSwap(false, true) {
		close(h.hangs)
		<-h.until
	}
	return h.silentDisks.Readable(p)
}

// A look for the executors' directories hangs with one disk of a Spark store. Blocks on the other disks are found by the directories
// that were known before. Newer ones are found once the disk is known not to answer.
func TestLookForExecutorsThatHangsHoldsUpNobody(t *testing.T) {
	n, f := newBox(t, with(sparkStore, "s0", "s1")), &silentDisks{Disks: diskio.OrWell(nil)}
	s, manager := n.stores[0], filepath.Join(n.dir, "s1/blockmgr-1")
	writeMapOutput(t, []string{manager}, 0, 1, 1000)
	find := func(id BlockID) {
		t.Helper()
		found := make(chan error, 1)
		go func() {
			_, err := s.Find(id)
			found <- err
		}()
		select {
		case err := <-found:
			if err != nil {
				t.Errorf("find %s: %v", id, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("find %s: it hangs with another disk", id)
		}
	}
	find("spark/blockmgr-1/shuffle_0_1_0")
	h := hangingDisks{f, s.Paths[0], &atomic.Bool{}, make(chan struct{}), make(chan struct{})}
	defer close(h.until)
	s.Watch(h)
	s.mu.Lock()
	s.seenAt = s.seenAt.Add(-time.Minute)
	s.mu.Unlock()
	go s.Find("spark/blockmgr-1/shuffle_0_1_0")
	<-h.hangs
	find("spark/blockmgr-1/shuffle_0_1_0")
	writeMapOutput(t, []string{filepath.Join(n.dir, "s1/blockmgr-2")}, 0, 2, 1000)
	f.hang(s.Paths[0], true)
	find("spark/blockmgr-2/shuffle_0_2_0")
}
