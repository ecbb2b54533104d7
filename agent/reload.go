package agent

import (
	"slices"

	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/preemption"
)

// limits are the settings that may change while the agent runs: how it drains, and how far it goes for which kind
// of notice. What the disks keep free is theirs (SetReserve).
type limits struct {
	Drain  Drain
	Policy preemption.Policy
	// Evacuate is disks.evacuate.
	Evacuate bool
}

func limitsOf(cfg Config) *limits {
	return &limits{cfg.Drain, cfg.Policy, cfg.Disks.Evacuate}
}

// limitDrains has what runs go by the caps as they are now. Whoever begins a drain says it too: the caps may have changed while
// that was made.
func (a *Agent) limitDrains() {
	l := a.limits.Load().Drain
	a.drains.limit(l)
	a.evacuations.limit(l)
}

// policy says how far the node goes for which kind of notice.
func (a *Agent) policy() preemption.Policy { return a.limits.Load().Policy }

// Reload takes over those settings of a new configuration that may change while the agent runs, also in the middle of a
// drain; a policy holds for what is noticed from then on. It returns the sections that differ and were left alone: they need a restart.
func (a *Agent) Reload(cfg Config) (left []string) {
	a.limits.Store(limitsOf(cfg))
	a.disks.SetReserve(int64(cfg.Receive.ReserveBytes))
	cfg.Disks.Evacuate = a.file.Disks.Evacuate // was taken over; the rest of its section is not
	a.limitDrains()
	a.attention.stir() // when workloads are stopped follows from it

	left = config.Differs(a.file, cfg, "drain", "receive", "policy")
	for _, key := range config.Differs(a.file.Receive, cfg.Receive, "reserve_bytes") {
		left = append(left, "receive."+key)
	}
	slices.Sort(left)
	return left
}
