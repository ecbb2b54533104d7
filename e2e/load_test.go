package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/client"
)

// extra is a node that only registers and beats.
type extra struct {
	api.MembershipClient
	name string
	gaps []time.Duration // between two answered beats
}

func (v *trio) extra(name string) *extra {
	v.t.Helper()
	cert, key, err := certs.Issue(v.tls, certs.Name{Role: certs.RoleNode, Name: name}, nil, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	id, err := certs.Load(filepath.Join(v.tls, "ca.pem"), cert, key)
	if err != nil {
		v.t.Fatal(err)
	}
	return &extra{MembershipClient: api.NewMembershipClient(v.dial(id)), name: name}
}

func (v *trio) dial(id *certs.Identity) *client.Conn {
	conn := client.New(client.Config{Addresses: v.grpcs, Credentials: credentials.NewTLS(id.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator}))})
	v.t.Cleanup(func() { conn.Close() })
	return conn
}

// live beats until ctx ends, and registers when told to.
func (e *extra) live(ctx context.Context) {
	answered := time.Now()
	for sequence := uint64(1); ctx.Err() == nil; sequence++ {
		st := &api.Status{RoomBytes: 1 << 30}
		reply, err := e.Heartbeat(ctx, &api.HeartbeatRequest{Node: e.name, Incarnation: "1", Status: st, Sequence: sequence})
		if err == nil && reply.Register {
			sequence++
			_, err = e.Register(ctx, &api.RegisterRequest{Node: e.name, Incarnation: "1", PeerAddress: e.name + ":7412", Status: st, Sequence: sequence})
		}
		if err == nil {
			e.gaps = append(e.gaps, time.Since(answered))
			answered = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// promise is what an operator was last answered about a node.
type promise struct {
	node     string
	state    string
	deadline time.Time
}

// keeps returns an error if the node is not what was promised.
func (p promise) keeps(n *api.Node) error {
	switch {
	case n.State != p.state:
		return fmt.Errorf("%s is %s, and was promised to be %s", p.node, n.State, p.state)
	case p.state == "DECOMMISSIONING" && n.Deadline.AsTime().Sub(p.deadline).Abs() > time.Second:
		return fmt.Errorf("%s leaves until %s, and was promised to until %s", p.node, n.Deadline.AsTime(), p.deadline)
	}
	return nil
}

// The leader is killed about every second, while operators decide, nodes beat, and one node drains. Nothing that was
// answered is lost, no deadline moves by more than a second, and no node counts as LOST.
func TestFailoverLoad(t *testing.T) {
	v := newTrio(t, "lease: 10s")
	a, _ := v.agent("host-a", slow), v.agent("host-b")
	a.fill(10, 4<<20)
	v.up()
	id, err := certs.LoadDir(v.tls)
	if err != nil {
		t.Fatal(err)
	}
	const operators, nodesEach = 4, 3
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	alive, die := context.WithCancel(t.Context())
	var all, beats sync.WaitGroup
	defer all.Wait()
	var extras []*extra
	defer func() { die(); beats.Wait() }()
	for i := range operators * nodesEach {
		e := v.extra(fmt.Sprintf("extra-%02d", i))
		extras = append(extras, e)
		beats.Go(func() { e.live(alive) })
	}
	v.until(func() error {
		if n := strings.Count(v.verb("nodes").stdout, "extra-"); n != len(extras) {
			return fmt.Errorf("got %d nodes, want %d", n, len(extras))
		}
		return nil
	})
	v.verb("decommission", "host-a", "--timeout", "30m").exits(0)
	ordered := a.seen().Deadline

	var mu sync.Mutex // guards what follows
	var promises []promise
	decided := 0
	for i := range operators {
		all.Go(func() {
			o := api.NewOperatorClient(v.dial(id))
			random := rand.New(rand.NewPCG(2, uint64(i)))
			mine := make([]promise, nodesEach)
			for k := range mine {
				mine[k] = promise{node: extras[i*nodesEach+k].name, state: "ACTIVE"}
			}
			for k := 0; ctx.Err() == nil; k++ {
				p := &mine[random.IntN(nodesEach)]
				if n, err := o.GetNode(ctx, &api.GetNodeRequest{Node: p.node}); err == nil {
					if err := p.keeps(n); err != nil {
						t.Error(err)
						break
					}
				}
				next, err := decideOn(ctx, o, p.node, random.IntN(3) == 0, time.Hour+time.Duration(k)*time.Minute)
				for err != nil && ctx.Err() == nil { // it may have been decided, and may be asked for again
					next, err = decideOn(ctx, o, p.node, next.state == "ACTIVE", time.Hour+time.Duration(k)*time.Minute)
				}
				if err == nil {
					*p = next
					mu.Lock()
					decided++
					mu.Unlock()
				} else {
					*p = promise{} // no answer came before the end
				}
				if p.node == "" {
					break
				}
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
			mu.Lock()
			defer mu.Unlock()
			promises = append(promises, mine...)
		})
	}
	decides := func() {
		count := func() int { mu.Lock(); defer mu.Unlock(); return decided }
		was := count()
		v.until(func() error {
			if count() == was {
				return errors.New("nobody gets anything decided")
			}
			return nil
		})
	}
	for range *failovers {
		time.Sleep(time.Second)
		decides()
		leader := v.leader()
		leader.kill()
		time.Sleep(300 * time.Millisecond)
		leader.start()
	}
	decides()
	stop()
	all.Wait()

	o := api.NewOperatorClient(v.dial(id))
	for _, p := range promises {
		if p.node == "" {
			continue
		}
		n, err := o.GetNode(t.Context(), &api.GetNodeRequest{Node: p.node})
		if err == nil {
			err = p.keeps(n)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if n := a.seen(); n.State == "DECOMMISSIONING" {
		v.sameDeadline("at the end", n.Deadline, ordered)
	}
	a.drained()
	v.until(a.is("DECOMMISSIONED"))
	a.allMoved(a.manifest())
	if n := strings.Count(v.verb("events", "-o", "json").exits(0).stdout, "NodeLost"); n > 0 {
		t.Errorf("%d nodes count as lost", n)
	}
	die()
	beats.Wait()
	var longest time.Duration
	for _, e := range extras {
		for _, gap := range e.gaps {
			longest = max(longest, gap)
		}
	}
	t.Logf("%d failovers, %d decisions, longest time without an answered beat %s", *failovers, decided, longest)
}

// decideOn asks for one decision. It returns what that promises even with an error: the call may have been decided without
// an answer.
func decideOn(ctx context.Context, o api.OperatorClient, node string, stay bool, timeout time.Duration) (promise, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if stay {
		_, err := o.Recommission(ctx, &api.RecommissionRequest{Nodes: []string{node}})
		return promise{node: node, state: "ACTIVE"}, err
	}
	reply, err := o.Decommission(ctx, &api.DecommissionRequest{Nodes: []string{node}, Timeout: durationpb.New(timeout)})
	p := promise{node: node, state: "DECOMMISSIONING"}
	if err == nil {
		p.deadline = reply.Nodes[0].Deadline.AsTime()
	}
	return p, err
}

// A fleet's only coordinator is killed again and again while it decides. Each time, what it had answered is still decided.
func TestKilledWhileDeciding(t *testing.T) {
	f := newFleet(t, "lease: 1h")
	a := f.agent("host-a")
	f.start()
	a.kill()
	v := &trio{fleet: f, grpcs: []string{f.grpc}}
	id, err := certs.LoadDir(f.tls)
	if err != nil {
		t.Fatal(err)
	}
	o := api.NewOperatorClient(v.dial(id))
	k := 0
	for round := range 5 {
		var last promise
		var deciding sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		enough := make(chan struct{}) // another number of decisions each round, so that the kill comes at another step of a decision
		deciding.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if n == 3+7*round {
					close(enough)
				}
				k++
				p, err := decideOn(ctx, o, "host-a", false, time.Hour+time.Duration(k)*time.Minute)
				if err != nil {
					return // this decision may have been made or not
				}
				last = p
			}
		})
		select {
		case <-enough:
		case <-time.After(patience):
		}
		f.coordinator.kill()
		stop()
		deciding.Wait()
		f.coordinator.start()
		if last.node == "" {
			t.Errorf("round %d: nothing was decided", round)
			continue
		}
		var n *api.Node
		f.until(func() (err error) {
			n, err = o.GetNode(t.Context(), &api.GetNodeRequest{Node: "host-a"})
			return err
		})
		if maybe := last.deadline.Add(time.Minute); n.Deadline.AsTime().Sub(maybe).Abs() > time.Second {
			if err := last.keeps(n); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		}
	}
	t.Logf("%d decisions, %d kills", k, 5)
}
