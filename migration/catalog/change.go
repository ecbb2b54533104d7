package catalog

import (
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/diskio"
)

// change is the write to the catalog that is under way, if any. A look does not wait for a write, except while the write has bbolt's lock
// on the meta page. On a frozen file system (fsfreeze, for a snapshot), or a disk that hangs, that may last for ever.
type change struct {
	diskio.Watched

	dir  string
	only sync.Mutex // one write at a time, as in bbolt
	work diskio.Work

	mu     sync.Mutex
	knock  <-chan struct{} // closed when a trial look has begun; nil: none is being tried
	knocks time.Time       // when the trial look was tried
}

// longChange is longer than nearly all writes take, so that few of them have a trial look beside them.
const longChange = diskio.Suspect / 10

// begin counts a write in until end is called.
func (c *change) begin() (end func()) {
	c.only.Lock()
	c.work.Begin(&c.dir)
	return func() { c.work.End(); c.only.Unlock() }
}

// admits returns a SilentError if a look cannot begin for Overdue, or once the disk is unwell for Suspect. While a write has run for less
// than longChange it admits every look, and the look may wait in bbolt.
func (c *change) admits(db *bbolt.DB) error {
	now := time.Now()
	if _, took, is := c.work.On(now); !is || took < longChange {
		return nil
	}
	c.mu.Lock()
	if c.knock == nil {
		c.knocks, c.knock = now, await.Beside(func() {
			_ = db.View(func(*bbolt.Tx) error { return nil })
			c.mu.Lock()
			defer c.mu.Unlock()
			c.knock = nil
		})
	}
	knock, since := c.knock, c.knocks
	c.mu.Unlock()
	for {
		patience := diskio.Overdue
		if c.Readable(c.dir) != nil {
			patience = diskio.Suspect
		}
		late := time.NewTimer(min(time.Until(since.Add(patience)), longChange))
		select {
		case <-knock:
			late.Stop()
			return nil
		case <-late.C:
			if time.Since(since) >= patience {
				return diskio.Silence(c.dir)
			}
		}
	}
}
