package preemption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/systemd"
)

func TestLogindNotesAShutdown(t *testing.T) {
	for how, kind := range map[systemd.How]Kind{
		"": KindShutdown, systemd.HowPowerOff: KindShutdown, systemd.HowHalt: KindShutdown, "factory-reset": KindShutdown,
		systemd.HowReboot: KindReboot, systemd.HowKexec: KindReboot, systemd.HowSoftReboot: KindReboot,
	} {
		t.Run("how "+string(how), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host, news := listenToLogind(t)
				if got := host.held(); got != 1 {
					t.Errorf("%d locks from the start, want 1", got)
				}
				time.Sleep(time.Hour + time.Second)
				if all := news.take(); len(all) != 0 || host.held() != 1 || host.tries != 1 {
					t.Errorf("after a quiet hour heard %v, %d locks, %d connections, want none, 1, 1", all, host.held(), host.tries)
				}
				host.say(systemd.Shutdown{Down: true, How: how})
				n := news.one(t)
				want := Notice{
					Source: SourceLogind, ID: "shutdown", Kind: kind, SeenAt: time.Now(), Reason: n.Reason,
					Deadline: time.Now().Add(30*time.Second + 90*time.Second), // logind's delay, then the unit's TimeoutStopSec
				}
				if n != want || !strings.Contains(n.Reason, string(how)) {
					t.Errorf("got  %+v\nwant %+v", n, want)
				}
				host.say(systemd.Shutdown{Down: true, How: how})
				time.Sleep(time.Minute)
				if all := news.take(); len(all) != 0 || host.held() != 1 {
					t.Errorf("later heard %+v, holds %d locks, want nothing new and the lock kept", all, host.held())
				}
			})
		})
	}
}

func TestLogindGrantsWhatThereIs(t *testing.T) {
	for name, row := range map[string]struct{ stop, want time.Duration }{
		"no unit":              {0, 30 * time.Second},
		"a unit without limit": {systemd.Forever, 30*time.Second + 30*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := newLoginHost()
				host.stop = row.stop
				l, _ := host.source(t)
				news := listenTo(t, l)
				host.say(goesOff)
				if got := time.Until(news.one(t).Deadline); got != row.want {
					t.Errorf("%v until the deadline, want %v", got, row.want)
				}
			})
		})
	}
}

func TestLogindShutdownCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newLoginHost()
		l, _ := host.source(t)
		news := listenTo(t, l)
		for range 3 {
			host.say(goesOff)
			n := news.one(t)
			if err := l.Release(t.Context(), n); err != nil || host.held() != 0 {
				t.Fatalf("released: %v, %d locks, want none", err, host.held())
			}
			time.Sleep(time.Minute)
			if all := news.take(); len(all) != 0 || host.held() != 0 {
				t.Fatalf("a minute later heard %v, %d locks, want a lock that was let go to stay so", all, host.held())
			}
			host.say(stays)
			if w := news.one(t); !w.Withdrawn || !w.same(n) || !w.Deadline.Equal(n.Deadline) {
				t.Errorf("got %+v, want the notice withdrawn", w)
			}
			if host.held() != 1 {
				t.Errorf("%d locks, want it taken again at once", host.held())
			}
			if err := l.Release(t.Context(), n); err != nil || host.held() != 1 {
				t.Errorf("a release that comes too late: %v, %d locks, want the new one kept", err, host.held())
			}
		}
	})
}

func TestLogindReleasesOnlyItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newLoginHost()
		l, _ := host.source(t)
		news := listenTo(t, l)
		host.say(goesOff)
		news.one(t)
		if err := l.Release(t.Context(), Notice{Source: SourceEC2}); err != nil || host.held() != 1 {
			t.Errorf("another's notice released: %v, %d locks, want 1", err, host.held())
		}
	})
}

func TestLogindRebootTurnsIntoPowerOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, news := listenToLogind(t)
		host.say(reboots)
		first := news.one(t)
		time.Sleep(time.Minute) // logind is asked again, and does not say how
		if all := news.take(); len(all) != 0 {
			t.Errorf("heard %+v, want a reboot to stay one", all)
		}
		host.say(goesOff)
		if n := news.one(t); n.Kind != KindShutdown || !n.SeenAt.Equal(first.SeenAt) || !n.Deadline.Equal(first.Deadline) {
			t.Errorf("got %+v, want the same notice, graver", n)
		}
	})
}

func TestLogindRestartsWhileAllIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, news := listenToLogind(t)
		for i := range 5 {
			time.Sleep(time.Minute)
			before := time.Now()
			host.restart()
			if all := news.take(); len(all) != 0 || host.held() != 1 || host.tries != i+2 || time.Since(before) != 0 {
				t.Fatalf("heard %v, %d locks, %d connections, want none, 1, %d, at once", all, host.held(), host.tries, i+2)
			}
		}
		// A logind that comes back reads the locks from /run/systemd/inhibit: between the old and the new lock there must be
		// no moment without one.
		if host.most != 2 {
			t.Errorf("at most %d locks, want the old one kept until there is a new one", host.most)
		}
		for i, s := range host.connections[:5] {
			if !s.closed {
				t.Errorf("connection %d is still open", i)
			}
		}
		host.say(goesOff)
		news.one(t)
	})
}

func TestLogindRestartsWhileTheHostGoesDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, news := listenToLogind(t)
		host.say(reboots)
		n := news.one(t)
		host.set(func() { host.manager = reboots })
		host.restart() // logind forgets the shutdown
		if all := news.take(); len(all) != 0 {
			t.Errorf("heard %+v, want the manager's word to count", all)
		}
		host.set(func() { host.manager, host.unsure = stays, errors.New("busy") })
		time.Sleep(time.Minute)
		if all := news.take(); len(all) != 0 {
			t.Errorf("heard %+v, want unknown to change nothing", all)
		}
		host.set(func() { host.unsure = nil })
		time.Sleep(loginEvery)
		if w := news.one(t); !w.Withdrawn || !w.same(n) || host.held() != 1 {
			t.Errorf("got %+v and %d locks, want a withdrawal and the lock", w, host.held())
		}
	})
}

func TestLogindWithoutAManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newLoginHost()
		host.unsure = fmt.Errorf("ask: %w", systemd.ErrNotBooted) // elogind
		l, _ := host.source(t)
		news := listenTo(t, l)
		host.say(goesOff)
		news.one(t)
		host.restart()
		if w := news.one(t); !w.Withdrawn {
			t.Errorf("got %+v, want logind's word to be enough", w)
		}
	})
}

func TestLogindBusAbsentForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newLoginHost()
		host.absent = errors.New("no such socket")
		l, log := host.source(t)
		news := listenTo(t, l)
		time.Sleep(time.Hour)
		if all := news.take(); len(all) != 0 || host.tries < 350 || host.tries > 370 {
			t.Errorf("heard %v after %d tries, want nothing, and one each %v", all, host.tries, loginEvery)
		}
		if got := l.Health(); len(got) != 1 || !got[0].LastGood.IsZero() || !strings.Contains(got[0].Trouble, "no such socket") {
			t.Errorf("health %+v, want trouble", got)
		}
		host.set(func() { host.absent = nil })
		time.Sleep(loginEvery)
		synctest.Wait()
		if host.held() != 1 {
			t.Errorf("%d locks, want 1", host.held())
		}
		if got := l.Health()[0]; got.Trouble != "" || time.Since(got.LastGood) > loginEvery {
			t.Errorf("health %+v, want all well", got)
		}
		host.say(goesOff)
		news.one(t)
		news.end()
		if lines := strings.Count(log.String(), "\n"); lines != 2 {
			t.Errorf("logged %d lines, want the start and the end of the trouble:\n%s", lines, log)
		}
	})
}

func TestLogindDiesAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newLoginHost()
		l, _ := host.source(t)
		listenTo(t, l)
		for range 3 { // the pauses start short each time
			host.set(func() { host.absent = errors.New("away") })
			host.restart()
			time.Sleep(2 * time.Second)
			host.set(func() { host.absent = nil })
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if got := l.Health()[0]; got.Trouble != "" || host.held() != 1 {
				t.Fatalf("health %+v, %d locks, want the lock back in two seconds", got, host.held())
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestLogindRefusesTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newLoginHost()
		host.refuses = errors.New("permission denied")
		l, log := host.source(t)
		news := listenTo(t, l)
		time.Sleep(time.Minute)
		if got := l.Health()[0]; !strings.Contains(got.Trouble, "permission denied") || host.tries != 1 {
			t.Errorf("health %+v after %d connections, want trouble on one", got, host.tries)
		}
		host.say(goesOff) // a shutdown that no lock holds up is heard all the same
		news.one(t)
		host.say(stays)
		news.one(t)
		host.set(func() { host.refuses = nil })
		time.Sleep(loginEvery)
		synctest.Wait()
		if host.held() != 1 || l.Health()[0].Trouble != "" {
			t.Errorf("%d locks, health %+v, want the lock", host.held(), l.Health())
		}
		news.end()
		if got := strings.Count(log.String(), "permission denied"); got > 2 {
			t.Errorf("the refusal is logged %d times:\n%s", got, log)
		}
	})
}

func TestLogindLetsGoWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newLoginHost()
		l, _ := host.source(t)
		for i := range 3 { // and may be asked again
			news := listenTo(t, l)
			if host.held() != 1 {
				t.Fatalf("%d locks, want 1", host.held())
			}
			news.end()
			if host.held() != 0 || !host.connections[i].closed {
				t.Fatalf("%d locks, connection closed: %v, want nothing left", host.held(), host.connections[i].closed)
			}
		}
	})
}

func TestLogindBelieves(t *testing.T) {
	said := Notice{Source: SourceLogind, ID: "shutdown", Kind: KindShutdown, Stance: StanceDrain}
	for name, row := range map[string]struct {
		logind, manager systemd.Shutdown
		want            []bool // withdrawn
	}{
		"it still goes down":             {goesOff, stays, nil},
		"only the manager knows":         {stays, goesOff, nil},
		"it was called off meanwhile":    {stays, stays, []bool{true}},
		"nothing was known, but it does": {goesOff, goesOff, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := newLoginHost()
				host.down, host.manager = row.logind, row.manager
				l, _ := host.source(t)
				taken := said
				taken.Withdrawn = true
				l.Believe(Notice{Source: SourceEC2, ID: "shutdown"}, said, taken)
				var got []bool
				for _, n := range listenTo(t, l).take() {
					got = append(got, n.Withdrawn)
				}
				if !slices.Equal(got, row.want) {
					t.Errorf("heard withdrawn %v, want %v", got, row.want)
				}
			})
		})
	}
}

func TestLogindStartsWhileTheHostGoesDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newLoginHost()
		host.down = goesOff
		l, log := host.source(t)
		news := listenTo(t, l)
		if n := news.one(t); time.Until(n.Deadline) != 2*time.Minute {
			t.Errorf("got %+v, want all that may be left", n)
		}
		if host.held() != 0 || log.Len() != 0 {
			t.Errorf("%d locks, logged %q, want none asked for", host.held(), log)
		}
	})
}

func TestTerminating(t *testing.T) {
	busy := errors.New("busy")
	for name, row := range map[string]struct {
		logind, manager systemd.Shutdown
		unsure          error
		stop            time.Duration
		want            Kind          // empty: no notice
		left            time.Duration // until the deadline; 0: not known
	}{
		"upgrade":                               {stays, stays, nil, 90 * time.Second, "", 0},
		"poweroff past logind":                  {stays, goesOff, nil, 90 * time.Second, KindShutdown, 90 * time.Second},
		"reboot past logind":                    {stays, reboots, nil, 90 * time.Second, KindReboot, 90 * time.Second},
		"stopping, nobody knows how":            {stays, systemd.Shutdown{Down: true}, nil, 90 * time.Second, KindShutdown, 90 * time.Second},
		"logind and manager":                    {goesOff, goesOff, nil, 90 * time.Second, KindShutdown, 90 * time.Second},
		"logind, and the manager does not know": {goesOff, stays, busy, 90 * time.Second, KindShutdown, 90 * time.Second},
		"nobody knows":                          {stays, stays, busy, 90 * time.Second, "", 0},
		"a container":                           {stays, stays, systemd.ErrNotBooted, 0, "", 0},
		"no unit":                               {stays, goesOff, nil, 0, KindShutdown, 0},
		"a unit without limit":                  {stays, goesOff, nil, systemd.Forever, KindShutdown, 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := newLoginHost()
				host.manager, host.unsure, host.stop = row.manager, row.unsure, row.stop
				l, _ := host.source(t)
				news := listenTo(t, l)
				if row.logind.Down {
					host.say(row.logind)
					news.one(t)
					time.Sleep(3 * time.Second)
				}
				n, ok := l.Terminating(t.Context())
				if ok != (row.want != "") || n.Kind != row.want {
					t.Fatalf("got %+v, %v, want kind %q", n, ok, row.want)
				}
				if !ok {
					return
				}
				if n.Source != SourceLogind || n.ID != "shutdown" || n.SeenAt.IsZero() {
					t.Errorf("got %+v, want logind's notice", n)
				}
				if row.left == 0 && n.Deadline.IsZero() {
					return
				}
				if left := time.Until(n.Deadline); left != row.left {
					t.Errorf("%v left, want %v", left, row.left)
				}
			})
		})
	}
}

func TestTerminatingDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		l := NewLogind(LogindConfig{
			Log:         slog.New(slog.DiscardHandler),
			Login:       func(ctx context.Context) (Login, error) { return nil, hangs(ctx) },
			GoingDown:   func(ctx context.Context) (systemd.Shutdown, error) { return systemd.Shutdown{}, hangs(ctx) },
			StopTimeout: func(ctx context.Context) (time.Duration, error) { return 0, hangs(ctx) },
		})
		news := listenTo(t, l)
		start := time.Now()
		if n, ok := l.Terminating(t.Context()); ok || time.Since(start) > managerLimit {
			t.Errorf("got %+v, %v after %v, want no notice in %v", n, ok, time.Since(start), managerLimit)
		}
		time.Sleep(time.Hour)
		if all := news.take(); len(all) != 0 {
			t.Errorf("heard %v", all)
		}
	})
}
