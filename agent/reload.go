package agent

import (
	"reflect"
	"slices"

	"github.com/lifeboat/lifeboat/preemption"
)

// limits are the settings that may change while the agent runs: how it drains, what it takes, and how far it goes for
// which kind of notice.
type limits struct {
	Drain   Drain
	Receive Receive
	Policy  preemption.Policy
	// Evacuate is disks.evacuate.
	Evacuate bool
}

func limitsOf(cfg Config) *limits {
	return &limits{cfg.Drain, cfg.Receive, cfg.Policy, cfg.Disks.Evacuate}
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
	now := limitsOf(cfg)
	if now.Receive.MaxStreams != a.file.Receive.MaxStreams {
		left = append(left, "receive.max_streams")
	}
	if now.Receive.MaxBytes != a.file.Receive.MaxBytes {
		left = append(left, "receive.max_bytes")
	}
	if now.Receive.Keep != a.file.Receive.Keep {
		left = append(left, "receive.keep")
	}
	if now.Receive.ScrubBytesPerSecond != a.file.Receive.ScrubBytesPerSecond {
		left = append(left, "receive.scrub_bytes_per_second")
	}
	if !slices.Equal(now.Receive.Paths, a.file.Receive.Paths) {
		left = append(left, "receive.paths")
	}
	a.limits.Store(now)
	a.disks.SetReserve(reserve(cfg.Receive))
	cfg.Disks.Evacuate = a.file.Disks.Evacuate // was taken over; the rest of its section is not
	a.limitDrains()
	a.attention.stir() // when workloads are stopped follows from it

	old, wanted := reflect.ValueOf(a.file), reflect.ValueOf(cfg)
	for i := range old.NumField() {
		key := old.Type().Field(i).Tag.Get("yaml")
		if key == "drain" || key == "receive" || key == "policy" {
			continue
		}
		if !reflect.DeepEqual(old.Field(i).Interface(), wanted.Field(i).Interface()) {
			left = append(left, key)
		}
	}
	slices.Sort(left)
	return left
}
