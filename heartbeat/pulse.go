package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
)

const (
	// The interval of beats until a coordinator tells its own, and the bounds on what it may tell.
	firstInterval = time.Second
	leastInterval = 100 * time.Millisecond
	mostInterval  = time.Minute

	// answerLimit bounds how long an attempt waits for a coordinator that accepts and never answers; a sixth of the lease,
	// if that is less. A lease must cover giving up such a coordinator, coming back within the window that it told, and two
	// missed beats. Below leastLimit a busy machine would pass for a dead one.
	answerLimit = 5 * time.Second
	leastLimit  = time.Second

	backoffFirst = 250 * time.Millisecond
	backoffMost  = 5 * time.Second
	// turnPause is the pause before the next address while some are still untried.
	turnPause = 100 * time.Millisecond
	// nudgeGap keeps a storm of nudges from becoming a storm of beats.
	nudgeGap = 100 * time.Millisecond
)

var errForgotten = errors.New("asks to register right after a registration")

// pulse is the loop of beats. Only its own goroutine touches it.
type pulse struct {
	*Client
	interval     time.Duration
	peersVersion uint64 // of the peers in hand, as numbered by the coordinator in use; 0: send them all
	registered   bool
	place        place         // as told at the last registration
	fresh        bool          // registered since the last answered beat
	failures     int           // in a row
	lease        time.Duration // as told; 0: not yet
	reconnect    time.Duration // the window in which to come back after a cut, as told
	apart        bool          // it has waited for its moment in that window since the last answered beat
	rested       time.Duration // how long it meant to pause since the last answered beat
	fence        fence
	skew         skew
	silence      streak
}

func newPulse(c *Client) *pulse {
	return &pulse{Client: c, interval: firstInterval, silence: streak{log: c.log, starts: "no heartbeat gets through", ends: "heartbeats get through again"}}
}

func (p *pulse) run(ctx context.Context) {
	for ctx.Err() == nil {
		if p.quiet.Load() {
			await.Sleep(ctx, nudgeGap)
			continue
		}
		if p.registered && !p.apart && p.links.cut() { // the coordinator ended and may be back: all nodes would come at once
			p.apart = true
			p.outbox.close() // a report would connect before the moment
			p.pause(ctx, time.Now(), p.moment())
		}
		began := time.Now()
		err := p.attempt(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && !p.registered:
			continue // the coordinator has forgotten the node: register at once
		case err == nil:
			p.failures, p.apart = 0, false
			p.silence.end("peer", p.links.address())
			p.answered(p.rested + 2*p.limit()) // it may have had to register first
			p.rested = 0
			p.outbox.open()
			p.pause(ctx, began, steady(p.interval))
		default:
			p.failures++
			if hint, _ := api.LeaderOf(err); hint.GetAddress() == "" { // otherwise the leader is asked next, which is no silence yet
				p.silence.goesOn(err)
			}
			p.beatFailed(err)
			p.outbox.close()
			p.peersVersion = 0 // a coordinator that was away may number its lists anew
			p.fresh = false    // the next attempt may ask another coordinator
			p.pause(ctx, began, p.backoff())
		}
	}
}

// attempt registers when that is due, and beats, with the coordinator whose turn it is.
func (p *pulse) attempt(ctx context.Context) error {
	k, err := p.links.use()
	if err != nil {
		return err
	}
	defer p.links.done(k)
	limited, cancel := context.WithTimeout(ctx, p.limit())
	defer cancel()
	k.connect(limited)
	if !p.registered || p.place != p.stands() {
		err = p.register(limited, k)
	}
	if err == nil {
		err = p.beat(limited, k)
	}
	if err != nil {
		if ctx.Err() == nil { // otherwise the coordinator did nothing wrong, and last words should still reach it
			p.links.leave(k, err)
		}
		return fmt.Errorf("coordinator %s: %w", k.address, err)
	}
	return nil
}

// place is a node's zone and pool.
type place struct{ zone, pool string }

func (p *pulse) stands() (at place) {
	if p.cfg.Place != nil {
		at.zone, at.pool = p.cfg.Place()
	}
	return at
}

func (p *pulse) register(ctx context.Context, k *link) error {
	at := p.stands()
	reply, err := k.Register(ctx, &api.RegisterRequest{
		Node:        p.cfg.Node,
		Incarnation: p.cfg.Incarnation,
		PeerAddress: p.cfg.PeerAddress,
		Zone:        at.zone,
		Pool:        at.pool,
		Version:     p.cfg.Version,
		Sequence:    p.sequence.next(),
		Began:       p.sequence.began(),
		Status:      p.status(),
	})
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if err := p.fence.admit(reply.GetTerm(), time.Now()); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	p.skew.forget()
	p.registered, p.fresh, p.place = true, true, at
	p.peersVersion = 0
	p.keepPace(reply.GetPace())
	p.paceReports(span(reply.GetPace().GetReportWithin()))
	if reply.GetNamesake() {
		p.namesake.Store(true)
	}
	p.outbox.full(words{}) // the coordinator knows nothing of what rests here
	p.log.Info("registered with the coordinator", "peer", k.address, "id", reply.GetNodeId())
	return nil
}

func (p *pulse) beat(ctx context.Context, k *link) error {
	sent := time.Now()
	revoked, _ := p.revoked.has()
	reply, err := k.Heartbeat(ctx, &api.HeartbeatRequest{
		Node:         p.cfg.Node,
		Incarnation:  p.cfg.Incarnation,
		Sequence:     p.sequence.next(), // taken before the status: a change in between makes the status newer than its number, never older
		Status:       p.status(),
		PeersVersion: p.peersVersion, RevokedVersion: revoked,
	})
	if err != nil {
		return fmt.Errorf("beat: %w", err)
	}
	if err := p.fence.admit(reply.GetTerm(), time.Now()); err != nil {
		return fmt.Errorf("beat: %w", err)
	}
	p.skew.measure(sent, time.Now(), reply.GetNow())
	return p.take(reply)
}

// take acts on a reply. A reply that asks for a registration says nothing else: a coordinator that does not know the node
// cannot know what was wished of it.
func (p *pulse) take(reply *api.HeartbeatReply) error {
	if reply.GetRegister() {
		p.registered = false
		if p.fresh {
			p.fresh = false
			return errForgotten // as a failure it is followed by a pause
		}
		return nil
	}
	p.fresh = false
	p.keepPace(reply.GetPace())
	// Version 0 says nothing of peers. The answer to a beat that a newer message, such as a notice, has overtaken has it,
	// and the drain that follows that notice needs the list that there is.
	if v := reply.GetPeersVersion(); v != 0 && (v != p.peersVersion || len(reply.GetPeers()) > 0) {
		p.peersVersion = v
		p.peers.hear(reply.GetPeers())
	}
	if p.revoked.hear(reply.GetRevokedVersion(), reply.GetRevoked()) && p.cfg.Revoked != nil {
		p.cfg.Revoked(reply.GetRevoked())
	}
	p.wishes.hear(reply.GetDirective())
	p.again.hear(reply.GetAgain())
	p.ends.hear(reply.GetAppsChanged())
	p.lapses.hear(reply.GetLapses())
	if reply.GetUnaccounted() {
		await.Mark(p.unsaid)
	}
	return nil
}

func (p *pulse) keepPace(pace *api.Pace) {
	if told := span(pace.GetInterval()); told > 0 {
		p.interval = min(max(told, leastInterval), mostInterval)
	}
	if told := span(pace.GetLease()); told > 0 {
		p.lease = told
	}
	p.reconnect = min(max(span(pace.GetReconnectWithin()), 0), mostInterval)
}

// limit is how long an attempt may take.
func (p *pulse) limit() time.Duration {
	if p.lease == 0 {
		return answerLimit
	}
	return min(max(p.lease/6, leastLimit), answerLimit)
}

// status is the node's status, with the measured skew of its clock.
func (p *pulse) status() *api.Status {
	if p.cfg.Status == nil {
		return nil
	}
	s := p.cfg.Status()
	if ahead, ok := p.skew.ahead(); ok && s != nil {
		s.ClockAhead = durationpb.New(ahead)
	}
	return s
}

// backoff is the pause after a failure: short while another address is untried, then growing with every round. All nodes
// lose sight of a coordinator at once, so each comes back at a moment of its own.
func (p *pulse) backoff() time.Duration {
	rounds, within := p.failures/len(p.cfg.Coordinators), p.failures%len(p.cfg.Coordinators)
	pause := jittered(turnPause)
	if within == 0 {
		pause = min(backoff(rounds), p.limit())
	}
	if !p.apart || within == 0 && rounds > 1 {
		p.apart = true
		pause = max(pause, p.moment())
	}
	return pause
}

// moment is a random moment in the window over which the coordinator wants the nodes to come back.
func (p *pulse) moment() time.Duration {
	if p.reconnect <= 0 || p.hurried() {
		return 0
	}
	return rand.N(p.reconnect)
}

// hurried reports whether the node is under a notice, and so does not wait for its moment: it has little time, and such
// nodes are few.
func (p *pulse) hurried() bool {
	if p.cfg.Status == nil {
		return false
	}
	n := p.cfg.Status().GetNotice()
	return n != nil && n.GetStance() != "ignore"
}

// pause waits until span after began, so that the time that a hanging coordinator took counts as waited. A nudge ends it
// early.
func (p *pulse) pause(ctx context.Context, began time.Time, span time.Duration) {
	p.rested += span
	left := time.Until(began.Add(span))
	if left <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(left):
	case <-p.nudge:
		await.Sleep(ctx, time.Until(began.Add(nudgeGap)))
	}
}

// backoff is the pause after the nth failure in a row, counted from 1: doubling, at most 5 s, and jittered, so that a
// fleet whose coordinator comes back does not come back to it all at once.
func backoff(n int) time.Duration {
	return jittered(min(backoffFirst<<min(n-1, 10), backoffMost))
}

// jittered returns between half of d and d.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// steady returns d give or take a tenth: beats of many nodes that started together drift apart.
func steady(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// span is a duration from the wire; absent or malformed is 0.
func span(d *durationpb.Duration) time.Duration {
	if d == nil || d.CheckValid() != nil {
		return 0
	}
	return d.AsDuration()
}
