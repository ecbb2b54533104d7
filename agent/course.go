package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/preemption"
)

// course is what the agent does about the open incident: it hears the notices, copies ahead, drains, tells and waits.
type course struct {
	log         *slog.Logger
	keep        time.Duration // receive.keep
	limits      *rules
	fleet       *fleet
	incidents   *incidents
	disks       *landing
	workloads   *attendant
	evacuations *evacuations
	refuge      *refuge
	fallback    *standby
	ballast     *durable.Ballast   // for the names of lost blocks
	logind      *preemption.Logind // nil: logind is not asked
	counts      *counters
	aside       *sync.WaitGroup
	drainConfig func(id, dir string, cap config.Bytes) migration.DrainConfig

	manual     *preemption.Manual
	notices    *preemption.Watcher
	drains     drains
	vigil      vigil
	written    chan page     // pages of drains that are over, after which something was written here
	accounting chan struct{} // full while an account is written and sent
	passing    chan struct{} // full while a pass of a drain runs
}

func (a *Agent) openCourse() {
	a.course = course{
		log: a.log, keep: a.cfg.Receive.Keep, limits: &a.limits, fleet: &a.fleet, incidents: &a.incidents, disks: &a.disks, workloads: &a.workloads, evacuations: a.evacuations,
		refuge: a.refuge, fallback: &a.fallback, ballast: a.ballast.account, logind: a.deps.Logind, counts: a.counts, aside: &a.aside, drainConfig: a.drainConfig,
		manual: preemption.NewManual(), written: make(chan page), accounting: make(chan struct{}, 1), passing: make(chan struct{}, 1),
	}
	a.course.vigil.course = &a.course
	a.course.drains.free(a.started) // how long an earlier process waited, or whether there was one, is not known
}

// Run does what the notices ask, one incident after the other. An incident that a crash interrupted comes first.
func (c *course) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		var err error
		p, open := c.incidents.Open()
		why := c.staysAfterAll()
		switch stance, _ := c.incidents.Stance(); {
		case open && why != nil && (p.Begun || p.Incident.Withdrawn()): // while no process ran, or one was killed before it acted on it
			c.recommission(ctx, why)
		case stance.AtLeast(preemption.StanceDrain):
			err = c.leave(ctx)
		case stance.AtLeast(preemption.StancePreCopy):
			err = c.prepare(ctx)
		default:
			err = c.hear(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hear waits for the next notice and joins it to the incident. If the incident is due for a review before one comes, as when
// an appointment is near, it does that instead.
func (c *course) hear(ctx context.Context) error {
	waiting, stop := c.incidents.untilDue(ctx)
	defer stop()
	n, err := c.notices.Next(waiting)
	switch {
	case err == nil:
		c.join(ctx, n)
	case ctx.Err() != nil:
	case waiting.Err() != nil:
		c.review(ctx)
	default:
		return err
	}
	return nil
}

// prepare copies blocks to peers while the node serves on, until the stance changes.
func (c *course) prepare(ctx context.Context) error {
	incident := c.incidents.current()
	preparing, stop := context.WithCancel(ctx)
	defer stop()
	g, preparing := errgroup.WithContext(preparing)
	g.Go(func() error {
		defer stop()
		for preparing.Err() == nil {
			if stance, _ := c.incidents.Stance(); stance != preemption.StancePreCopy {
				return nil
			}
			if err := c.hear(preparing); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error { c.copyAhead(preparing, incident); return nil })
	g.Go(func() error { c.carryAgain(preparing); return nil })
	err := g.Wait()
	if c.incidents.current().ID != incident.ID { // a pass that began as it ended has made its drain the current one
		c.drains.set(nil, false, false)
	}
	return err
}

// leave empties the node, tells the coordinator and the workloads, and stays until the machine goes or the notice is taken
// back.
func (c *course) leave(ctx context.Context) error {
	if p, _ := c.incidents.Open(); !p.Incident.Leaving() {
		c.begin(p.Incident) // the time to leave came while this process started
	}
	if !c.incidents.leaving() {
		return nil // the estimate of how long leaving takes has shrunk since: it is too early
	}
	leaving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g, leaving := errgroup.WithContext(leaving)
	g.Go(func() error { // a notice that comes meanwhile may shorten the time, or take the leaving back
		for leaving.Err() == nil {
			if err := c.hear(leaving); err != nil {
				return err
			}
			if why := c.staysAfterAll(); why != nil {
				stop(why)
			}
		}
		return nil
	})
	g.Go(func() error { c.tell(leaving); return nil })
	g.Go(func() error { c.workloads.stop(leaving); return nil })
	g.Go(func() error { c.carryAgain(leaving); return nil })
	g.Go(func() error {
		released := make(map[string]bool)
		for leaving.Err() == nil && c.drain(leaving) {
			c.leaveAccount(leaving)
			if c.wroteSince(leaving) {
				continue
			}
			c.release(leaving, released)
			c.untilNews(leaving, released)
		}
		return nil
	})
	err := g.Wait()
	if why := context.Cause(leaving); ctx.Err() == nil && (errors.Is(why, errWithdrawn) || errors.Is(why, errOutlived)) {
		c.recommission(ctx, why)
		return nil
	}
	return err
}

var (
	errWithdrawn = errors.New("the notice was withdrawn")
	errOutlived  = errors.New("the machine outlived its deadline")
)
