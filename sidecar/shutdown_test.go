package sidecar

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
	"github.com/lifeboat/lifeboat/workloads"
)

// system is an operating system without logind, which goes down or not.
func system(down systemd.Shutdown, stop time.Duration) *preemption.Logind {
	return preemption.NewLogind(preemption.LogindConfig{
		Log:         slog.New(slog.DiscardHandler),
		Login:       func(context.Context) (preemption.Login, error) { return nil, errors.New("no logind") },
		GoingDown:   func(context.Context) (systemd.Shutdown, error) { return down, nil },
		StopTimeout: func(context.Context) (time.Duration, error) { return stop, nil },
	})
}

func TestStopTellsNobody(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.logind = system(systemd.Shutdown{}, 90*time.Second)
		m.action(Action{Name: "one"})
		one := &fake{}
		m.start(one)
		m.pass(time.Second)
		began := time.Now()
		m.end()
		m.told("one", one)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s to stop, want no time", took)
		}
	})
}

// SIGTERM while the host goes down is a notice, and the sidecar stays until every action was told.
func TestShutdownIsToldBeforeTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.logind = system(systemd.Shutdown{Down: true, How: systemd.HowPowerOff}, 90*time.Second)
		m.action(Action{Name: "slow"})
		m.action(Action{Name: "stuck"})
		slow := &fake{tell: func(context.Context, workloads.Word) error { time.Sleep(20 * time.Second); return nil }}
		stuck := &fake{tell: hang}
		m.start(slow, stuck)
		m.pass(time.Second)
		began := time.Now()
		m.end()
		h := m.told("slow", slow, noticed)[0]
		m.told("stuck", stuck, noticed)
		if h.Kind != "shutdown" || h.Source != "logind" {
			t.Errorf("told of %s from %s, want shutdown from logind", h.Kind, h.Source)
		}
		if took := time.Since(began); took != 85*time.Second {
			t.Errorf("it stayed for %s, want what the manager leaves it less five seconds", took)
		}
	})
}

// host is an operating system with a logind that waits for the locks that it gave.
type host struct {
	down  chan systemd.Shutdown
	locks atomic.Int32
}

func (h *host) source() *preemption.Logind {
	return preemption.NewLogind(preemption.LogindConfig{
		Log:         slog.New(slog.DiscardHandler),
		Login:       func(context.Context) (preemption.Login, error) { return h, nil },
		GoingDown:   func(context.Context) (systemd.Shutdown, error) { return systemd.Shutdown{}, nil },
		StopTimeout: func(context.Context) (time.Duration, error) { return 90 * time.Second, nil },
	})
}

func (h *host) Next(ctx context.Context) (systemd.Shutdown, error) {
	select {
	case s := <-h.down:
		return s, nil
	case <-ctx.Done():
		return systemd.Shutdown{}, ctx.Err()
	}
}

func (h *host) Preparing(context.Context) (systemd.Shutdown, error) { return systemd.Shutdown{}, nil }
func (h *host) Planned(context.Context) (systemd.Plan, error)       { return systemd.Plan{}, nil }
func (h *host) MaxDelay(context.Context) (time.Duration, error)     { return 30 * time.Second, nil }

func (h *host) Inhibit(context.Context, string) (io.Closer, error) {
	h.locks.Add(1)
	return h, nil
}

// Close closes the lock; the connection is not closed before the end.
func (h *host) Close() error {
	h.locks.Add(-1)
	return nil
}

// A reboot that the policy ignores, a reboot that no action is told of, and one of which an action was told, wait no longer
// for the sidecar.
func TestRebootGoesOnWhenAllAreTold(t *testing.T) {
	for name, row := range map[string]struct {
		policy preemption.Policy
		when   preemption.Stance
		want   []workloads.Phase
	}{
		"it is ignored":    {preemption.Policy{preemption.KindReboot: preemption.StanceIgnore}, preemption.StanceWatch, nil},
		"nobody is told":   {nil, preemption.StanceDrain, nil},
		"somebody is told": {nil, preemption.StanceWatch, []workloads.Phase{noticed}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, m *machine) {
				h := &host{down: make(chan systemd.Shutdown)}
				m.logind, m.cfg.Policy = h.source(), row.policy
				m.action(Action{Name: "slow", When: string(row.when)})
				slow := &fake{tell: func(context.Context, workloads.Word) error { time.Sleep(3 * time.Second); return nil }}
				m.start(slow)
				m.pass(time.Second)
				if h.locks.Load() != 1 {
					t.Fatalf("%d locks are held, want 1", h.locks.Load())
				}
				h.down <- systemd.Shutdown{Down: true, How: systemd.HowReboot}
				m.pass(time.Second)
				if row.want != nil && h.locks.Load() != 1 {
					t.Errorf("%d locks are held while somebody is told, want 1", h.locks.Load())
				}
				m.pass(3 * time.Second)
				m.told("slow", slow, row.want...)
				if h.locks.Load() != 0 {
					t.Errorf("%d locks hold the reboot back, want none: there is nothing to wait for", h.locks.Load())
				}
			})
		})
	}
}
