package catalog

import (
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// change is what is being written to the catalog, if anything is. Who looks waits for none of it but for the write of the meta page, behind
// whose lock bbolt has no look begin: on a file system that is frozen (fsfreeze, for a snapshot), or whose disk hangs, that may be never.
type change struct {
	diskio.Watched

	dir  string
	only sync.Mutex // as bbolt has it
	work diskio.Work

	mu     sync.Mutex
	knock  <-chan struct{} // somebody tries to begin a look; nil: nobody does
	knocks time.Time       // since when
}

// longChange is longer than nearly all changes take, so that looks knock beside few of them.
const longChange = diskio.Suspect / 10

// begin says that something is written, until the end.
func (c *change) begin() (end func()) {
	c.only.Lock()
	c.work.Begin(&c.dir)
	return func() { c.work.End(); c.only.Unlock() }
}

// admits returns a SilentError where a look would not begin for as long as a disk may take, of which less is waited for once it is unwell. A
// change that has only just begun may keep out who is let in here.
func (c *change) admits(db *bbolt.DB) error {
	now := time.Now()
	if _, took, is := c.work.On(now); !is || took < longChange {
		return nil
	}
	c.mu.Lock()
	if c.knock == nil {
		c.knocks, c.knock = now, diskio.Beside(func() {
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
