package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

const (
	// failovers is how often the leader is killed, and how often it hands over in either of two ways.
	failovers = 50
	// trioAgents is how many agents beat all the while: a new leader has to answer them too.
	trioAgents = 3
	// handOverLasts is for how long decisions are asked for without a pause after the leader was told to stop: far longer
	// than handing over takes.
	handOverLasts = 500 * time.Millisecond
)

// trio is three coordinators with a few agents, and an operator who decides one thing again and again: he sets the timeout
// of one decommission, each time to another value.
type trio struct {
	*coordinators
	agents    []*daemon
	desk      api.OperatorClient
	decisions int
	ordered   time.Time // the deadline that the first decision set
}

// measureFailover measures for how long nothing can be decided when the leader dies, and when it hands over.
func measureFailover(ctx context.Context, b bench) (_ []figure, err error) {
	v, err := newTrio(ctx, b)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	rounds := max(2, int(failovers*b.scale))
	ask := func(name string, target map[string]time.Duration, once func(context.Context, *coordinator) (time.Duration, error)) (delay, error) {
		var took []time.Duration
		for range rounds {
			leader, err := v.leader(ctx, v.desk)
			if err != nil {
				return delay{}, err
			}
			if _, err := v.decide(ctx); err != nil {
				return delay{}, leader.trouble(err)
			}
			one, err := once(ctx, leader)
			if err != nil {
				return delay{}, fmt.Errorf("%s: %w", name, leader.trouble(err))
			}
			took = append(took, one)
		}
		fmt.Fprintf(b.stderr, "%s: %d rounds, load %s\n", name, rounds, load())
		return delay{name, newSpread(took), target}, nil
	}
	var delays []delay
	for _, q := range []struct {
		name   string
		target map[string]time.Duration
		once   func(context.Context, *coordinator) (time.Duration, error)
	}{
		{"kill -9 of the leader", map[string]time.Duration{"p50": 500 * time.Millisecond, "max": time.Second}, v.killed},
		{"raft transfer", map[string]time.Duration{"p50": 20 * time.Millisecond}, v.transferred},
		{"SIGTERM of the leader", map[string]time.Duration{"p50": 20 * time.Millisecond}, v.stopped},
	} {
		one, err := ask(q.name, q.target, q.once)
		if err != nil {
			return nil, err
		}
		delays = append(delays, one)
	}
	if err := v.check(ctx); err != nil {
		return nil, err
	}
	return delayFigures("failover", delays, b.args), printDelays(b.stdout, "until the next durable decision of three coordinators", delays)
}

func newTrio(ctx context.Context, b bench) (_ *trio, err error) {
	v := &trio{}
	// The node that is decided about never beats. The long lease keeps it from being LOST.
	if v.coordinators, err = newCoordinators(ctx, b, 3, "heartbeat: 1s\nlease: 1h\n"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, v.close())
		}
	}()
	v.desk = v.operator()
	if _, err := v.leader(ctx, v.desk); err != nil {
		return nil, err
	}
	node, err := v.member(ctx, "decided-about")
	if err != nil {
		return nil, err
	}
	if _, err := node.Register(ctx, &api.RegisterRequest{Node: "decided-about", Incarnation: "one", PeerAddress: "127.0.0.1:1"}); err != nil {
		return nil, err
	}
	f := &fleet{lifeboat: v.lifeboat, dir: v.dir}
	for i := range trioAgents {
		name := fmt.Sprintf("agent-%d", i)
		if _, _, err := command(ctx, v.binary, "tls", "issue", "--dir", v.pki, "--node", name); err != nil {
			return nil, err
		}
		ports, err := freePorts(2)
		if err != nil {
			return nil, err
		}
		conf := fmt.Sprintf(`node: {name: %s}
coordinators: [%q, %q, %q]
listen: {peer: %q, http: %q, socket: %s}
data_dir: %s
cloud: {provider: none}
%s`, name, v.all[0].grpc, v.all[1].grpc, v.all[2].grpc, ports[0], ports[1], filepath.Join(v.dir, name+".sock"), f.data(name), f.tls(name))
		d, err := f.daemon(ctx, "agent", name, conf)
		if err != nil {
			return nil, err
		}
		v.agents = append(v.agents, d)
	}
	return v, nil
}

// decide asks for one decision, waits until it is durable, and returns how long that took.
func (v *trio) decide(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	v.decisions++
	began := time.Now()
	r, err := v.desk.Decommission(ctx, &api.DecommissionRequest{
		Nodes: []string{"decided-about"}, Timeout: durationpb.New(24*time.Hour + time.Duration(v.decisions)*time.Second),
	})
	took := time.Since(began)
	if err == nil && v.decisions == 1 {
		v.ordered = r.GetNodes()[0].GetDeadline().AsTime()
	}
	return took, err
}

// killed returns the time from the leader's death to the next decision.
func (v *trio) killed(ctx context.Context, leader *coordinator) (time.Duration, error) {
	if err := pause(ctx, 500*time.Millisecond); err != nil { // the coordinator that was started last has caught up by then
		return 0, err
	}
	began := time.Now()
	if err := leader.kill(); err != nil {
		return 0, err
	}
	if _, err := v.decide(ctx); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return took, v.start(ctx, leader)
}

// transferred returns the time from the order to hand over to the next decision.
func (v *trio) transferred(ctx context.Context, _ *coordinator) (time.Duration, error) {
	began := time.Now()
	if _, err := v.desk.TransferLeadership(ctx, &api.TransferLeadershipRequest{Reason: "bench"}); err != nil {
		return 0, err
	}
	_, err := v.decide(ctx)
	return time.Since(began), err
}

// stopped returns the longest time that a decision takes while a leader that got SIGTERM hands over. The first decisions
// are still its own.
func (v *trio) stopped(ctx context.Context, leader *coordinator) (longest time.Duration, err error) {
	if err := leader.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	for until := time.Now().Add(handOverLasts); time.Now().Before(until); {
		took, err := v.decide(ctx)
		if err != nil {
			return 0, err
		}
		longest = max(longest, took)
	}
	if _, err := leader.stop(); err != nil {
		return 0, err
	}
	return longest, v.start(ctx, leader)
}

// check makes sure that no decision was lost: the last one is in force, which moved the deadline a second for each decision since the first,
// and no node is LOST.
func (v *trio) check(ctx context.Context) error {
	n, err := v.desk.GetNode(ctx, &api.GetNodeRequest{Node: "decided-about"})
	if err != nil {
		return err
	}
	s, err := v.desk.GetStatus(ctx, &api.GetStatusRequest{OfLeader: true})
	if err != nil {
		return err
	}
	moved := n.GetDeadline().AsTime().Sub(v.ordered).Round(time.Second)
	if lost := s.GetNodes()["LOST"]; n.GetState() != "DECOMMISSIONING" || moved != time.Duration(v.decisions-1)*time.Second || lost != 0 {
		return fmt.Errorf("after %d decisions the node is %s, its deadline has moved by %s, and %d are lost", v.decisions, n.GetState(), moved, lost)
	}
	return nil
}

func (v *trio) close() error {
	var errs []error
	for _, d := range v.agents {
		_, err := d.stop()
		errs = append(errs, err)
	}
	return errors.Join(append(errs, v.coordinators.close())...)
}
