package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

const (
	// fanOuts is how often a node announces that it leaves, in each row, and takes that back. Each row has a node of its own: the
	// coordinator bounds how often one node changes (coordinator/quotas.go), at 100 times in so short a time.
	fanOuts     = 30
	mostFanOuts = 45
	// stalledOnes is how many subscribers read none of their events.
	stalledOnes = 200
	// stalledHistory is how many past events the stalled subscribers are sent first: more than their sockets take.
	stalledHistory = 4000
)

// fanOut is one row of the suite subscribers.
type fanOut struct {
	kind    string // gRPC or SSE
	many    int
	stalled bool
	target  time.Duration // of the median
}

var fanOutsAsked = []fanOut{
	{"gRPC", 100, false, 8 * time.Millisecond},
	{"SSE", 100, false, 8 * time.Millisecond},
	{"gRPC", 1000, false, 30 * time.Millisecond},
	{"SSE", 1000, false, 30 * time.Millisecond},
	{"gRPC", 1000, true, 30 * time.Millisecond},
	{"SSE", 1000, true, 30 * time.Millisecond},
}

func (f fanOut) String() string {
	s := fmt.Sprintf("%d by %s", f.many, f.kind)
	if f.stalled {
		s += fmt.Sprintf(", %d stalled", stalledOnes)
	}
	return s
}

// measureSubscribers measures the time from a node's announcement until the last follower of events has it. The
// subscribers are in this process, the coordinator is another.
func measureSubscribers(ctx context.Context, b bench) (_ []figure, err error) {
	c, err := newCoordinators(ctx, b, 1, "lease: 1h\n")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	var delays []delay
	for i, q := range fanOutsAsked {
		q.many = max(2, int(float64(q.many)*b.scale))
		node, err := newAnnouncer(ctx, c, fmt.Sprintf("announcer-%d", i))
		if err != nil {
			return nil, err
		}
		took, err := q.measure(ctx, c, node, min(max(2, int(fanOuts*b.scale)), mostFanOuts))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q, c.all[0].trouble(err))
		}
		fmt.Fprintf(b.stderr, "%s: load %s\n", q, load())
		delays = append(delays, delay{q.String(), newSpread(took), map[string]time.Duration{"p50": q.target}})
	}
	return delayFigures("subscribers", delays, b.args), printDelays(b.stdout, "announcement to the last subscriber", delays)
}

// announcer is a node that announces again and again that it leaves.
type announcer struct {
	api.MembershipClient
	name string
}

func newAnnouncer(ctx context.Context, c *coordinators, name string) (a announcer, err error) {
	a.name = name
	if a.MembershipClient, err = c.member(ctx, name); err != nil {
		return a, err
	}
	_, err = a.Register(ctx, &api.RegisterRequest{Node: name, Incarnation: "one", PeerAddress: "127.0.0.1:1"})
	return a, err
}

// audience is all subscribers of one row.
type audience struct {
	ctx    context.Context
	stop   context.CancelCauseFunc
	after  uint64 // subscribe after this event, so that the newest one comes at once
	wg     sync.WaitGroup
	ready  atomic.Int64
	heard  atomic.Int64
	mu     sync.Mutex // guards what follows
	wanted []byte     // the incident whose announcement is waited for
	last   time.Time  // when the latest subscriber had it
}

func (q fanOut) measure(ctx context.Context, c *coordinators, node announcer, rounds int) (took []time.Duration, err error) {
	a := &audience{}
	a.ctx, a.stop = context.WithCancelCause(ctx)
	defer func() {
		a.stop(nil)
		a.wg.Wait()
	}()
	if q.stalled {
		hangUp, err := stall(ctx, c, node)
		defer hangUp()
		if err != nil {
			return nil, err
		}
	}
	s, err := c.operator().GetStatus(ctx, &api.GetStatusRequest{})
	if err != nil {
		return nil, err
	}
	a.after = s.GetLastIndex() - 1
	for range q.many {
		a.wg.Go(func() {
			follow := a.overGRPC
			if q.kind == "SSE" {
				follow = a.overHTTP
			}
			if err := follow(c); err != nil && a.ctx.Err() == nil {
				a.stop(fmt.Errorf("a subscriber: %w", err))
			}
		})
	}
	for round := range rounds + 1 {
		one, err := a.round(node, fmt.Sprintf("inc-%s-%d-%t-%d", q.kind, q.many, q.stalled, round), int64(q.many))
		if err != nil {
			return nil, err
		}
		if round > 0 { // the first round only makes sure that all subscribers are there
			took = append(took, one)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// round announces that the node leaves and withdraws it, and returns how long the last subscriber waited for the
// announcement.
func (a *audience) round(node announcer, incident string, many int64) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(a.ctx, 30*time.Second)
	defer cancel()
	for a.ready.Load() < many {
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return 0, fmt.Errorf("%d of %d follow: %w", a.ready.Load(), many, context.Cause(a.ctx))
		}
	}
	a.mu.Lock()
	a.wanted = []byte(incident)
	a.mu.Unlock()
	a.heard.Store(0)
	began := time.Now()
	n := &api.Notice{Incident: incident, Kind: "terminate", Source: "ec2", Stance: "drain", Remaining: durationpb.New(2 * time.Minute)}
	if _, err := node.WorkerDecommission(ctx, &api.WorkerDecommissionRequest{Node: node.name, Incarnation: "one", Notice: n}); err != nil {
		return 0, err
	}
	for a.heard.Load() < many {
		if err := pause(ctx, time.Millisecond); err != nil {
			return 0, fmt.Errorf("%d of %d have it: %w", a.heard.Load(), many, context.Cause(a.ctx))
		}
	}
	a.mu.Lock()
	took := a.last.Sub(began)
	a.mu.Unlock()
	_, err := node.WithdrawDecommission(ctx, &api.WithdrawDecommissionRequest{Node: node.name, Incarnation: "one", Incident: incident})
	return took, err
}

// hear notes one event that came to one subscriber.
func (a *audience) hear(typ string, incident []byte) {
	if typ != "WorkerDecommission" {
		return
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if bytes.Contains(incident, a.wanted) {
		a.heard.Add(1)
		a.last = now
	}
}

func (a *audience) overGRPC(c *coordinators) error {
	conn, err := c.direct()
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := api.NewOperatorClient(conn).Events(a.ctx, &api.EventsRequest{After: a.after, Follow: true})
	if err != nil {
		return err
	}
	here := sync.OnceFunc(func() { a.ready.Add(1) })
	for {
		e, err := stream.Recv()
		if err != nil {
			return err
		}
		here() // the newest past event has come: from now on events are followed
		a.hear(e.GetType(), []byte(e.GetData()["incident"]))
	}
}

func (a *audience) overHTTP(c *coordinators) error {
	r, err := http.NewRequestWithContext(a.ctx, http.MethodGet, fmt.Sprintf("https://%s/events?after=%d", c.all[0].http, a.after), nil)
	if err != nil {
		return err
	}
	reply, err := c.pages().Do(r)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("/events: %s", reply.Status)
	}
	here := sync.OnceFunc(func() { a.ready.Add(1) })
	typ := ""
	for lines := bufio.NewReaderSize(reply.Body, 4<<10); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		if rest, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
			here()
			typ = string(bytes.TrimSpace(rest))
		} else if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			a.hear(typ, data)
		}
	}
}

// stall opens subscriptions that read nothing, over sockets so small that the past events fill them: of a node that an operator
// deactivates again and again.
func stall(ctx context.Context, c *coordinators, node announcer) (hangUp func(), err error) {
	desk := c.operator()
	for i := range stalledHistory {
		r := &api.DeactivateRequest{Nodes: []string{node.name}, Reason: "one of many that nobody reads", Undo: i%2 > 0}
		if _, err := desk.Deactivate(ctx, r); err != nil {
			return func() {}, err
		}
	}
	var open []io.Closer
	hangUp = func() {
		for _, c := range open {
			c.Close()
		}
	}
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10) }), err)
	}}
	for range stalledOnes {
		client := c.pages()
		client.Transport.(*http.Transport).DialContext = dialer.DialContext
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.all[0].http+"/events?after=1", nil)
		if err != nil {
			return hangUp, err
		}
		reply, err := client.Do(r)
		if err != nil {
			return hangUp, err
		}
		open = append(open, reply.Body)
	}
	return hangUp, nil
}
