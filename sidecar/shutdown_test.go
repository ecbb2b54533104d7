package sidecar

import (
	"context"
	"errors"
	"log/slog"
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

// SIGTERM while the host goes down is a notice, and the sidecar stays until everybody knows.
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
