package clustertest_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/coordinator"
)

// What operators ask about a node in this test: that it leaves within that many slots, that it stays, or how it is. The answer to a read is
// 0 if the node stays, else the slots within which it leaves.
type (
	asked struct {
		node string
		do   string // leave, stay or read
		slot int    // of leave
	}
	answered struct {
		slot int // of read
	}
)

// slot is the unit of the timeouts in this test. It is longer than the test, so that a deadline tells which order it is of.
const slot = 10 * time.Minute

// decisions is what the decision API promises: each call takes effect at one instant between its start and its answer.
var decisions = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		of := map[string]int{}
		for _, o := range history {
			name := o.Input.(asked).node
			if _, ok := of[name]; !ok {
				of[name] = len(parts)
				parts = append(parts, nil)
			}
			parts[of[name]] = append(parts[of[name]], o)
		}
		return parts
	},
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		switch in := input.(asked); in.do {
		case "leave":
			return true, in.slot
		case "stay":
			return true, 0
		default:
			return output.(answered).slot == state.(int), state
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprint(input, output) },
}

// diary is a history of calls by one clock.
type diary struct {
	clock atomic.Int64
	mu    sync.Mutex // guards what follows
	calls []porcupine.Operation
	mute  int // changes without an answer: they may have been made, and at any later time
}

func (d *diary) enter(client int, in asked, call func() (answered, error)) (err error) {
	began := d.clock.Add(1)
	out, err := call()
	ended := d.clock.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		_, follows := api.LeaderOf(err)
		if in.do == "read" || follows && strings.Contains(err.Error(), "does not lead") || !follows && strings.Contains(err.Error(), "connection refused") {
			return err // the call changed nothing
		}
		d.mute++
		ended = math.MaxInt64
	}
	d.calls = append(d.calls, porcupine.Operation{ClientId: client, Input: in, Call: began, Output: out, Return: ended})
	return err
}

// history returns the calls for the checker. An order without an answer was made, if at all, before the first read that saw it; one that no
// read saw may as well never have been made. So few calls are left without an end, each of which doubles what the checker must search.
func (d *diary) history() (calls []porcupine.Operation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := map[asked]int64{}
	for _, o := range d.calls {
		if in := o.Input.(asked); in.do == "read" {
			order := asked{in.node, "leave", o.Output.(answered).slot}
			if at, ok := seen[order]; !ok || o.Return < at {
				seen[order] = o.Return
			}
		}
	}
	for _, o := range d.calls {
		if in := o.Input.(asked); in.do == "leave" && o.Return == math.MaxInt64 {
			at, ok := seen[in]
			if !ok {
				continue
			}
			o.Return = at
		}
		calls = append(calls, o)
	}
	return calls
}

// Operators decide and read while leaders are killed, cut off and replaced. Whichever coordinator they ask, they see what one coordinator
// that never fails would have shown them.
func TestDecisionsAreLinearizable(t *testing.T) {
	quiet := clustertest.Config{Agents: 2, Coordinators: 3, Coordinator: func(cfg *coordinator.Config) { cfg.Lease = time.Hour }}
	t.Parallel()
	var d diary
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, quiet)
		for i := range quiet.Agents {
			c.Kill(i) // no agents: what they report would change nodes too
		}
		began := time.Now()
		var orders atomic.Int64
		ctx, stop := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		for client := range 4 {
			clients.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(client)))
				desks := make([]api.OperatorClient, c.Coordinators())
				for i := range desks {
					desks[i] = c.Operator(i)
				}
				leader := 0 // as far as this client knows
				for ctx.Err() == nil {
					in := asked{node: c.Name(random.IntN(quiet.Agents)), do: []string{"leave", "leave", "leave", "stay", "read", "read", "read", "read"}[random.IntN(8)]}
					at := leader
					if in.do == "read" {
						at = random.IntN(len(desks)) // former leaders too
					}
					in.slot = 0
					if in.do == "leave" {
						in.slot = int(orders.Add(1))
					}
					err := d.enter(client, in, func() (answered, error) { return ask(ctx, desks[at], in, began) })
					if hint, follows := api.LeaderOf(err); follows && hint.GetLeader() != "" {
						leader = numberOf(c, hint.GetLeader())
					} else if err != nil {
						leader = random.IntN(len(desks))
					}
					pause := time.Duration(5+random.IntN(60)) * time.Millisecond
					if err != nil && in.do == "stay" {
						pause = time.Second
					}
					select {
					case <-ctx.Done():
					case <-time.After(pause):
					}
				}
			})
		}
		for range 3 {
			c.Sleep(time.Second)
			old := c.Leader()
			c.CutCoordinator(old, false)
			c.Sleep(2 * time.Second)
			c.Heal()
			c.Sleep(time.Second)
			killed := c.Leader()
			c.KillCoordinator(killed)
			c.Sleep(2 * time.Second)
			c.RestartCoordinator(killed)
			c.Sleep(time.Second)
			c.StopCoordinator(c.Leader())
			for i := range c.Coordinators() {
				if c.CoordinatorStatus(i) == nil {
					c.RestartCoordinator(i)
				}
			}
		}
		c.Sleep(time.Second)
		stop()
		clients.Wait()
		if time.Since(began) > slot {
			t.Fatalf("the test took %s, longer than a slot", time.Since(began))
		}
		t.Logf("%d calls were answered, %d changes not", len(d.calls)-d.mute, d.mute)
		if len(d.calls) < 200 {
			t.Errorf("got %d calls, want hundreds", len(d.calls))
		}
	})
	linearizable(t, d.history()) // on the machine's own clock: it has a limit
}

func linearizable(t *testing.T, calls []porcupine.Operation) {
	t.Helper()
	switch result, info := porcupine.CheckOperationsVerbose(decisions, calls, time.Minute); result {
	case porcupine.Illegal:
		picture := t.ArtifactDir() + "/history.html"
		if err := porcupine.VisualizePath(decisions, info, picture); err != nil {
			t.Error(err)
		}
		t.Errorf("what the operators saw fits no order of their calls: %s", picture)
	case porcupine.Unknown:
		t.Error("the checker did not come to an end")
	}
}

// ask makes one call of one coordinator.
func ask(ctx context.Context, desk api.OperatorClient, in asked, began time.Time) (answered, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	switch in.do {
	case "leave":
		_, err := desk.Decommission(ctx, &api.DecommissionRequest{Nodes: []string{in.node}, Timeout: durationpb.New(time.Duration(in.slot) * slot)})
		return answered{}, err
	case "stay":
		_, err := desk.Recommission(ctx, &api.RecommissionRequest{Nodes: []string{in.node}})
		return answered{}, err
	}
	n, err := desk.GetNode(ctx, &api.GetNodeRequest{Node: in.node})
	if err != nil || n.State == "ACTIVE" {
		return answered{}, err
	}
	return answered{int(n.Deadline.AsTime().Sub(began) / slot)}, nil
}

func numberOf(c *clustertest.Cluster, name string) int {
	for i := range c.Coordinators() {
		if clustertest.CoordinatorName(i) == name {
			return i
		}
	}
	return 0
}

// The checker finds stale reads: a read of an older state after a change was answered.
func TestCheckerFindsStaleReads(t *testing.T) {
	call := func(at int64, do string, slot int) porcupine.Operation {
		o := porcupine.Operation{Input: asked{"host-a", do, slot}, Output: answered{}, Call: 2 * at, Return: 2*at + 1}
		if do == "read" {
			o.Input, o.Output = asked{"host-a", do, 0}, answered{slot}
		}
		return o
	}
	for _, s := range []struct {
		name  string
		slots string // the answers of the reads; before them an order of slot 1 is answered, and then one of slot 2 is not
		want  porcupine.CheckResult
	}{
		{"the order that was answered", "1 1", porcupine.Ok},
		{"then the one that was not", "1 2", porcupine.Ok},
		{"from before", "0", porcupine.Illegal},
		{"and back", "2 1", porcupine.Illegal},
	} {
		history := []porcupine.Operation{call(1, "leave", 1), call(2, "leave", 2)}
		history[1].Return = math.MaxInt64
		for i, field := range strings.Fields(s.slots) {
			history = append(history, call(int64(3+i), "read", int(field[0]-'0')))
		}
		if got := porcupine.CheckOperationsTimeout(decisions, history, time.Second); got != s.want {
			t.Errorf("%s: got %s, want %s", s.name, got, s.want)
		}
	}
}
