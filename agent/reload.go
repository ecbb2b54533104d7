package agent

import (
	"slices"
	"sync/atomic"

	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/preemption"
)

// limits are the settings that may change while the agent runs: how it drains, and how far it goes for which kind of notice.
// The reserve of the disks may change too, but lies with the monitor (SetReserve).
type limits struct {
	Drain  Drain
	Policy preemption.Policy
	// Evacuate is disks.evacuate.
	Evacuate bool
}

// rules are the limits in force, and what they make of an incident. Ask again: a reload changes them.
type rules struct{ atomic.Pointer[limits] }

func limitsOf(cfg Config) *limits {
	return &limits{cfg.Drain, cfg.Policy, cfg.Disks.Evacuate}
}

// policy says how far the node goes for which kind of notice.
func (r *rules) policy() preemption.Policy { return r.Load().Policy }

// Reload takes over the settings of a new configuration that may change while the agent runs, even during a drain. A policy
// applies to notices that come after it. The certificate is read again too: who has put a new one in its place need not wait
// until the keeper looks. Reload returns the sections that differ and were not taken over: they need a restart.
func (a *Agent) Reload(cfg Config) (left []string) {
	if err := a.deps.Identity.Reload(); err != nil {
		a.log.Warn("the certificate's files are not in order: what was read before stays in use until a restart", "file", a.cfg.TLS.Cert, "err", err)
	}
	a.limits.Store(limitsOf(cfg))
	a.disks.monitor.SetReserve(int64(cfg.Receive.ReserveBytes))
	cfg.Disks.Evacuate = a.file.Disks.Evacuate // it was taken over, unlike the rest of its section
	l := a.limits.Load().Drain
	a.course.drains.limit(l)
	a.evacuations.limit(l)
	a.workloads.attention.stirred.Tell() // the limits decide when workloads are stopped

	left = config.Differs(a.file, cfg, "drain", "receive", "policy")
	for _, key := range config.Differs(a.file.Receive, cfg.Receive, "reserve_bytes") {
		left = append(left, "receive."+key)
	}
	slices.Sort(left)
	return left
}
