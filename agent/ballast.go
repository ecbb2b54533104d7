package agent

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/lifeboat/lifeboat/durable"
)

// ballast is room that is kept in data_dir for a notice that comes when its disk is full. The incident must still be
// written, and the names of lost blocks too, or readers are told "unknown" where they should be told "lost".
type ballast struct{ journal, account *durable.Ballast }

const (
	journalBallast = 64 << 10 // a page of the journal is some KiB
	// A lost block's line has its id and its reason: some 250 bytes.
	lostLine     = 256
	leastBallast = 4 << 20 // where the number of blocks is not known, as in Spark's directories
	mostBallast  = 64 << 20
	ballastEvery = time.Minute
)

func newBallast(dataDir string) ballast {
	in := func(name string) *durable.Ballast { return durable.NewBallast(filepath.Join(dataDir, name)) }
	return ballast{journal: in("ballast-journal"), account: in("ballast-account")}
}

// keepBallast makes the ballast while no incident is open, and makes it again after it was used, until ctx ends.
func (a *Agent) keepBallast(ctx context.Context) error {
	tick := time.NewTicker(ballastEvery)
	defer tick.Stop()
	for troubled := false; ; {
		if !a.incidents.IsOpen() && a.disks.Readable(a.cfg.DataDir) {
			blocks := a.index.State().Holds.Blocks + a.vault.Count().Blocks
			err := errors.Join(a.ballast.journal.Keep(journalBallast), a.ballast.account.Keep(min(max(leastBallast, blocks*lostLine), mostBallast)))
			if err != nil && !troubled {
				a.log.Warn("cannot reserve room for the manifest of a drain: if the disk is full then, not all lost blocks may be named", "err", err)
			}
			troubled = err != nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
