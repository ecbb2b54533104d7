package preemption

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/systemd"
)

// `shutdown -h +2` and `shutdown -r 04:00` are heard when they are typed, and not when it is time.
func TestPlannedShutdown(t *testing.T) {
	const granted = 30*time.Second + 90*time.Second // logind's delay, then the unit's TimeoutStopSec
	for name, row := range map[string]struct {
		how       systemd.How
		in        time.Duration
		kind      Kind
		appointed bool
	}{
		"in two minutes":      {systemd.HowPowerOff, 2 * time.Minute, KindShutdown, false},
		"in two days":         {systemd.HowHalt, 48 * time.Hour, KindShutdown, true},
		"a reboot next month": {systemd.HowReboot, 30 * 24 * time.Hour, KindReboot, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host, news := listenToLogind(t)
				time.Sleep(time.Hour + 3*time.Second)
				at := time.Now().Add(row.in)
				host.set(func() { host.plan = systemd.Plan{How: row.how, At: at} })
				time.Sleep(loginEvery)
				n := news.one(t)
				if n.ID != plannedID || n.Kind != row.kind || !sameInstant(n.Deadline, at.Add(granted)) || n.Appointed != row.appointed {
					t.Errorf("heard %+v, want %s by %s", n, row.kind, at.Add(granted))
				}
				time.Sleep(time.Minute)
				if all := news.take(); len(all) > 0 {
					t.Errorf("then heard %+v, want nothing new", all)
				}

				later := at.Add(time.Hour)
				host.set(func() { host.plan.At = later })
				time.Sleep(loginEvery)
				if moved := news.one(t); !moved.same(n) || !sameInstant(moved.Deadline, later.Add(granted)) || !moved.SeenAt.Equal(n.SeenAt) {
					t.Errorf("heard %+v, want it by %s", moved, later.Add(granted))
				}
				host.set(func() { host.plan = systemd.Plan{} })
				time.Sleep(loginEvery)
				if gone := news.one(t); !gone.same(n) || !gone.Withdrawn {
					t.Errorf("heard %+v, want it called off", gone)
				}
				if host.held() != 1 {
					t.Errorf("%d locks, want 1", host.held())
				}
			})
		})
	}
}

// The notice of a shutdown that has begun replaces that of the plan, and calling it off withdraws both.
func TestPlannedShutdownBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, news := listenToLogind(t)
		at := time.Now().Add(2 * time.Minute)
		host.set(func() { host.plan = systemd.Plan{How: systemd.HowPowerOff, At: at} })
		time.Sleep(loginEvery)
		planned := news.one(t)
		time.Sleep(time.Until(at))
		host.say(goesOff) // then logind forgets the plan: an answer in between would say that it was called off
		host.set(func() { host.plan = systemd.Plan{} })
		time.Sleep(time.Minute)
		if begun := news.one(t); begun.ID != shutdownID || begun.Withdrawn || begun.Deadline.Before(planned.Deadline.Add(-time.Second)) {
			t.Errorf("heard %+v, want the shutdown, no earlier than %s", begun, planned.Deadline)
		}
		host.say(stays)
		if all := news.take(); len(all) != 2 || !all[0].Withdrawn || all[0].ID != shutdownID || !all[1].Withdrawn || all[1].ID != plannedID {
			t.Errorf("heard %+v, want both called off", all)
		}
	})
}

func TestPlannedRebootTurnsIntoPowerOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, news := listenToLogind(t)
		for _, how := range []systemd.How{systemd.HowPowerOff, systemd.HowReboot} {
			host.set(func() { host.plan = systemd.Plan{How: how, At: time.Now().Add(time.Hour)} })
			time.Sleep(loginEvery)
			if all := news.take(); len(all) == 0 || all[len(all)-1].Kind != kindOf(how, "") || len(all) == 2 && !all[0].Withdrawn {
				t.Errorf("heard %+v, want %s in the place of what was", all, how)
			}
		}
	})
}

// An older logind says how the host goes down in its plan, and not when that begins.
func TestPlannedRebootIsOneWhenItBegins(t *testing.T) {
	for early, want := range map[time.Duration]Kind{0: KindReboot, time.Minute: KindShutdown} { // a shutdown before the planned time is another one
		synctest.Test(t, func(t *testing.T) {
			host, news := listenToLogind(t)
			at := time.Now().Add(2 * time.Minute)
			host.set(func() { host.plan = systemd.Plan{How: systemd.HowReboot, At: at} })
			time.Sleep(loginEvery)
			news.one(t)
			time.Sleep(time.Until(at) - early)
			host.say(systemd.Shutdown{Down: true})
			if begun := news.one(t); begun.Kind != want || begun.ID != shutdownID {
				t.Errorf("heard %+v %s early, want %s", begun, early, want)
			}
		})
	}
}

// A plan from before a restart is not announced again, and is called off if it no longer stands. A logind that is away, or
// too old to know plans, has called off nothing, and its lock stays held.
func TestPlannedShutdownIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newLoginHost()
		at := time.Now().Add(time.Hour)
		host.plan = systemd.Plan{How: systemd.HowPowerOff, At: at}
		first, _ := host.source(t)
		news := listenTo(t, first)
		known := news.one(t)
		news.end()

		host.noPlans = errors.New("unknown property")
		second, _ := host.source(t)
		second.Believe(known)
		news = listenTo(t, second)
		time.Sleep(time.Minute)
		host.restart()
		time.Sleep(time.Minute)
		host.set(func() { host.noPlans = nil })
		time.Sleep(time.Minute)
		if all := news.take(); len(all) > 0 || host.held() != 1 {
			t.Errorf("heard %+v, and %d locks are held, want nothing new, and 1", all, host.held())
		}
		host.set(func() { host.plan = systemd.Plan{} })
		time.Sleep(loginEvery)
		if gone := news.one(t); !gone.Withdrawn || !gone.same(known) {
			t.Errorf("heard %+v, want %+v called off", gone, known)
		}
	})
}
