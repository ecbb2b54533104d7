package coordinator

import (
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// steady tells the time by which deadlines are kept: the wall clock as it would show had nobody set it since the last look. Deadlines are
// instants in the log by the leader's wall clock, and when a time server sets that ahead, all drains seem to be out of time.
type steady struct{ last atomic.Pointer[reading] }

// reading is what both clocks showed at one moment. wall has no monotonic reading.
type reading struct{ wall, monotonic time.Time }

func (s *steady) now() time.Time { return s.at(time.Now()) }

func (s *steady) at(now time.Time) time.Time {
	r := s.last.Load()
	if r == nil {
		return now.Round(0)
	}
	return r.wall.Add(now.Sub(r.monotonic))
}

// ahead is how far the wall clock was set ahead since the last look; below zero if it was set back.
func (s *steady) ahead(now time.Time) time.Duration { return now.Round(0).Sub(s.at(now)) }

func (s *steady) look(now time.Time) { s.last.Store(&reading{now.Round(0), now}) }

// keepTime moves the deadlines of orders as far as this leader's clock was set ahead since the last look, so that no drain is cut short.
// Those of notices move by themselves: each heartbeat says anew how long they have, and no node is ended by the clock before a lease
// has passed. Deadlines of the maintenance schedule stay, for people look at the clock, too, before they switch machines off.
//
// Where the clock was set back, drains have more time than was said until somebody says otherwise: nothing is lost by that.
func (f *fleet) keepTime(now time.Time) {
	ahead := f.ledger.steady.ahead(now)
	if ahead.Abs() > mostApart {
		f.log.Warn("this coordinator's clock was set while it leads: look at its time service", "step", ahead.Round(time.Millisecond))
	}
	if ahead > mostApart {
		f.leases.regrant(now)
		f.lives.beats.regrant(now)
		var leave []string
		f.ledger.view(func(m *registry.Registry) {
			for _, n := range m.Nodes {
				if o := n.Wish(); n.Leaving() && o != nil && o.Timeout > 0 && o.By != registry.ByMaintenance {
					leave = append(leave, n.Name)
				}
			}
		})
		f.decideAll(registry.Command{Do: registry.DoDelay, After: ahead}, leave)
	}
	f.ledger.steady.look(now)
}
