package coordinator

import (
	"errors"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// watch ends decommissions whose time is up, makes nodes LOST whose restart takes too long, and forgets nodes that have been gone for
// long. It decides by the log alone: a node that never beats again holds up none of this.
func (f *fleet) watch(now time.Time) {
	var late, overdue, gone []string
	if now.Sub(f.leases.since()) <= f.cfg.Lease {
		return
	}
	f.ledger.view(func(m *registry.Registry) {
		for _, n := range m.Nodes {
			switch {
			case n.Late(now) && !n.HeardLate(now, f.cfg.Lease):
				late = append(late, n.Name)
			case n.AwayUntil(f.cfg.RestartTimeout, now):
				overdue = append(overdue, n.Name)
			case n.Outlived(now, f.cfg.ForgetAfter) && !f.leases.present(n.Name):
				gone = append(gone, n.Name)
			}
		}
	})
	f.decideAll(registry.Command{Do: registry.DoTimeout}, late)
	f.decideAll(registry.Command{Do: registry.DoLose, Overdue: true}, overdue)
	f.decideAll(registry.Command{Do: registry.DoForget, After: f.cfg.ForgetAfter}, gone)
}

// decideAll applies c to nodes, in batches that fit one entry of the log. A batch that fails is tried again at the next check, here or by
// the next leader.
func (f *fleet) decideAll(c registry.Command, nodes []string) {
	for batch := range slices.Chunk(nodes, reapBatch) {
		c.Nodes = batch
		if _, err := f.do(c); errors.Is(err, errFollows) || errors.Is(err, errDeposed) {
			return
		} else if err != nil {
			f.log.Error("a decision that was due cannot be written to the log: it is tried again", "event", string(c.Do), "err", err)
		}
	}
}
