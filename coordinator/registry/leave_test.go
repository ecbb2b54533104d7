package registry

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/hosts"
)

// orderEach orders nodes away with a timeout of their own.
func (s *story) orderEach(timeout time.Duration, own map[string]time.Duration, names ...string) {
	s.t.Helper()
	s.must(Command{Do: DoDecommission, Nodes: names, Order: &Order{Timeout: timeout, Reason: "kernel"}, Timeouts: own})
}

func (s *story) ended(name string, how Outcome) {
	s.t.Helper()
	if d := s.Nodes[name].Decommission; d == nil || d.Outcome != how {
		s.t.Errorf("node %s: got decommission %+v, want outcome %q", name, d, how)
	}
}

func TestLeavingStories(t *testing.T) {
	for name, tell := range map[string]func(*story){
		"a node's own timeout comes before the request's": func(s *story) {
			for _, n := range []string{"a", "b", "c", "d"} {
				s.register(n, "i1")
			}
			s.at(5).orderEach(time.Minute, map[string]time.Duration{"b": 10 * time.Minute, "c": hosts.Forever, "d": 0}, "a", "b", "c", "d")
			s.is("a", Decommissioning, 65)
			s.is("b", Decommissioning, 605)
			s.is("c", Decommissioning, 0)
			s.is("d", Decommissioned, 0)
			s.at(65).orderEach(2*time.Minute, nil, "a", "b", "c") // as a whole, from the beginning
			s.is("a", Decommissioning, 125)
			s.is("b", Decommissioning, 125)
			s.is("c", Decommissioning, 125)
		},
		"who only looks again changes no time, and gives some to who has none": func(s *story) {
			for _, n := range []string{"a", "b", "c"} {
				s.register(n, "i1")
			}
			s.order(time.Minute, "a", "b")
			s.at(9).must(Command{
				Do: DoDecommission, Nodes: []string{"a", "b", "c"}, Order: &Order{Timeout: time.Hour}, Unsaid: true,
				Timeouts: map[string]time.Duration{"b": 2 * time.Minute},
			})
			s.is("a", Decommissioning, 60)
			s.is("b", Decommissioning, 120)
			s.is("c", Decommissioning, 3609)
		},
		"an account is of the decommission that it was given for": func(s *story) {
			accounted := func(want bool) {
				s.t.Helper()
				if got := s.Nodes["a"].Accounted(); got != want {
					s.t.Errorf("at %s, %s: got an account: %t, want %t", s.now.Sub(t0), s.Nodes["a"].State, got, want)
				}
			}
			s.register("a", "i1")
			s.order(time.Minute, "a")
			s.at(5).goodbye("a", "inc1", 0)
			accounted(true)
			s.at(10).plain(DoRecommission, "a")
			accounted(true) // of its last one
			s.at(20).plain(DoLose, "a")
			accounted(true)
			s.at(30).order(time.Minute, "a")
			s.is("a", Lost, 0)
			accounted(false)
			s.at(40).order(0, "a")
			s.is("a", Decommissioned, 0)
			accounted(false)
			s.at(50).goodbye("a", "inc2", 0)
			accounted(true)
		},
		"no time is at once, and the wish stands": func(s *story) {
			s.register("a", "i1")
			s.at(3).order(0, "a")
			s.is("a", Decommissioned, 0)
			s.ended("a", Forced)
			if wish := s.Nodes["a"].Wish(); wish == nil || !wish.Deadline().Equal(s.now) {
				s.t.Errorf("got the order %+v, want one with no time left", wish)
			}
			s.at(9).goodbye("a", "inc1", 1) // it did what it could
			s.at(10).order(0, "a")
			s.order(time.Hour, "a")
			s.is("a", Decommissioned, 0)
			s.tells("NodeRegistered NodeDecommissioned ManifestReceived")
		},
		"who had time and has none left is ended as late": func(s *story) {
			s.register("a", "i1")
			s.order(time.Hour, "a")
			s.at(9).order(0, "a")
			s.is("a", Decommissioned, 0)
			s.ended("a", TimedOut)
			s.tells("NodeRegistered NodeDecommissioning DecommissionChanged NodeDecommissioned")
		},
		"a timeout that is over already ends it with the same decision": func(s *story) {
			s.register("a", "i1")
			s.order(time.Hour, "a")
			s.at(100).order(time.Minute, "a")
			s.is("a", Decommissioned, 0)
			s.ended("a", TimedOut)
		},
		"no time meets the node's own notice": func(s *story) {
			s.register("a", "i1")
			s.announce("a", "inc1", "terminate", 120*time.Second)
			s.at(9).order(0, "a")
			s.is("a", Decommissioned, 0)
			s.ended("a", TimedOut)
			s.tells("NodeRegistered WorkerDecommission NodeDecommissioning NodeDecommissioned")
		},
		"an order waits for a node that is away, with all of its time": func(s *story) {
			s.register("a", "i1")
			s.plain(DoLose, "a")
			s.at(10).order(time.Minute, "a")
			s.is("a", Lost, 0)
			s.at(11).order(2*time.Minute, "a") // another timeout, the same order
			s.at(500).register("a", "i1")
			s.is("a", Decommissioning, 620)
			s.tells("NodeRegistered NodeLost NodeDecommissioning DecommissionChanged NodeReturned")
		},
		"an order waits for a node that restarts, and outlives that": func(s *story) {
			s.register("a", "i1")
			s.plain(DoUnavailable, "a")
			s.at(10).order(time.Minute, "a")
			s.is("a", Shutdown, 0)
			s.at(700).must(Command{Do: DoLose, Overdue: true, Nodes: []string{"a"}})
			s.is("a", Lost, 0)
			s.at(900).register("a", "i1")
			s.is("a", Decommissioning, 960)
		},
		"no time for a node that is away is the end of it": func(s *story) {
			s.register("a", "i1")
			s.plain(DoLose, "a")
			s.order(0, "a")
			s.is("a", Decommissioned, 0)
			s.ended("a", Forced)
		},
		"a clock that ran goes on when the node is back": func(s *story) {
			s.register("a", "i1")
			s.order(hosts.Forever, "a")
			s.at(40).plain(DoLose, "a")
			s.at(50).order(time.Minute, "a")
			s.at(55).register("a", "i1")
			s.is("a", Decommissioning, 60) // from the first order
		},
		"a restart that takes too long": func(s *story) {
			s.register("a", "i1")
			s.plain(DoUnavailable, "a")
			s.plain(DoLose, "a") // its lease is nobody's business
			s.is("a", Shutdown, 0)
			s.must(Command{Do: DoLose, Overdue: true, Nodes: []string{"a"}})
			s.is("a", Lost, 0)
			s.register("a", "i1")
			s.is("a", Active, 0)
			s.tells("NodeRegistered NodeShutdown NodeLost NodeReturned")
			s.must(Command{Do: DoLose, Overdue: true, Nodes: []string{"a"}}) // decided when it was not back yet
			s.is("a", Active, 0)
		},
		"who is shut out by force is not expected back": func(s *story) {
			s.register("a", "i1")
			s.refresh(lists([]string{"b"}), false, 0)
			s.is("a", Shutdown, 0)
			s.at(9).must(Command{Do: DoLose, Overdue: true, Nodes: []string{"a"}})
			s.is("a", Shutdown, 0)
			s.at(10).refresh(lists(nil), true, 0)
			s.register("a", "i1")
			s.at(20).plain(DoUnavailable, "a") // and now it says so itself
			s.must(Command{Do: DoLose, Overdue: true, Nodes: []string{"a"}})
			s.is("a", Lost, 0)
		},
		"how long the gone are kept is the leader's to say": func(s *story) {
			s.register("a", "i1")
			s.plain(DoLose, "a")
			forget := Command{Do: DoForget, After: time.Minute, Nodes: []string{"a"}}
			s.at(60).must(forget)
			s.is("a", Lost, 0)
			s.at(61).must(forget)
			if _, kept := s.Nodes["a"]; kept {
				s.t.Error("node a is still there")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			tell(s)
			if err := checkMachine(s.Registry); err != nil {
				t.Error(err)
			}
		})
	}
}

// executors of a command.
func runs(node string, names ...string) map[string][]Executor {
	var all []Executor
	for _, n := range names {
		app, id, _ := strings.Cut(n, "/")
		all = append(all, Executor{Workload: "w", App: app, ID: id})
	}
	return map[string][]Executor{node: all}
}

func TestExecutorsAreToldOfOnce(t *testing.T) {
	two := runs("a", "app-1/7", "app-2/8")
	for name, tell := range map[string]func(*story){
		"order": func(s *story) {
			s.must(Command{Do: DoDecommission, Nodes: []string{"a"}, Order: &Order{Timeout: time.Hour}, Executors: two})
			s.tells("NodeDecommissioning ExecutorDecommissioned ExecutorDecommissioned")
			s.must(Command{Do: DoAnnounce, Nodes: []string{"a"}, Notice: &Notice{Incident: "x", Kind: "terminate", Deadline: s.now}, Executors: two})
			s.must(Command{Do: DoTimeout, Nodes: []string{"a"}, Executors: two})
			s.tells("WorkerDecommission NodeDecommissioned")
		},
		"notice": func(s *story) {
			s.must(Command{Do: DoAnnounce, Nodes: []string{"a"}, Notice: &Notice{Incident: "x", Kind: "terminate"}, Executors: two})
			s.must(Command{Do: DoAnnounce, Nodes: []string{"a"}, Notice: &Notice{Incident: "x", Kind: "terminate"}, Executors: two})
			s.tells("WorkerDecommission ExecutorDecommissioned ExecutorDecommissioned")
		},
		"files": func(s *story) {
			s.must(Command{Do: DoHosts, Hosts: lists(nil, "a"), Order: &Order{Timeout: time.Hour}, Executors: two})
			s.tells("HostsRefreshed NodeDecommissioning ExecutorDecommissioned ExecutorDecommissioned")
			s.must(Command{Do: DoHosts, Hosts: lists(nil, "a"), Force: true, Order: &Order{}, Executors: two})
			s.tells("NodeDecommissioned")
		},
		"by force": func(s *story) {
			s.must(Command{Do: DoDecommission, Nodes: []string{"a"}, Order: &Order{}, Executors: two})
			s.tells("NodeDecommissioned ExecutorDecommissioned ExecutorDecommissioned")
		},
		"late": func(s *story) { // nobody knew what ran there when it began
			s.order(time.Minute, "a")
			s.at(60).must(Command{Do: DoTimeout, Nodes: []string{"a"}, Executors: two})
			s.tells("NodeDecommissioning NodeDecommissioned ExecutorDecommissioned ExecutorDecommissioned")
		},
		"silence breaks it off": func(s *story) {
			s.must(Command{Do: DoDecommission, Nodes: []string{"a"}, Order: &Order{Timeout: hosts.Forever}, Executors: two})
			s.must(Command{Do: DoLose, Nodes: []string{"a"}, Executors: two})
			s.register("a", "i1", func(c *Command) { c.Executors = two })
			s.tells("NodeDecommissioning ExecutorDecommissioned ExecutorDecommissioned NodeLost NodeReturned")
		},
		"the order waited": func(s *story) {
			s.plain(DoLose, "a")
			s.must(Command{Do: DoDecommission, Nodes: []string{"a"}, Order: &Order{Timeout: time.Hour}, Executors: two})
			s.register("a", "i1", func(c *Command) { c.Executors = two })
			s.tells("NodeLost NodeDecommissioning NodeReturned ExecutorDecommissioned ExecutorDecommissioned")
		},
		"the next decommission": func(s *story) {
			s.must(Command{Do: DoDecommission, Nodes: []string{"a"}, Order: &Order{Timeout: time.Hour}, Executors: two})
			s.plain(DoRecommission, "a")
			s.told = nil
			s.must(Command{Do: DoDecommission, Nodes: []string{"a"}, Order: &Order{Timeout: time.Hour}, Executors: two})
			s.tells("NodeDecommissioning ExecutorDecommissioned ExecutorDecommissioned")
		},
		"nothing happens": func(s *story) {
			s.must(Command{Do: DoRegister, Nodes: []string{"a"}, Facts: &Facts{Incarnation: "i1", PeerAddress: "a:7412"}, Executors: two})
			s.plain(DoExclude, "a")
			s.tells("NodeExcluded")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.register("a", "i1")
			s.told = nil
			tell(s)
			for i, e := range s.Events {
				if e.Type == EventExecutor && s.Events[i-1].Node != "a" {
					t.Errorf("event %d does not follow one of its node", i)
				}
			}
		})
	}
	s := newStory(t)
	s.register("a", "i1")
	s.must(Command{Do: DoDecommission, Nodes: []string{"a"}, Order: &Order{Timeout: time.Hour}, Executors: two})
	if got, want := written(t, s.Events[2].Data), `{"app":"app-1","decommission":"dec-2","executor":"7","workload":"w"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// standing returns what must survive restarts, with times as the seconds that are left at an instant.
func standing(m *Registry, at time.Time) map[string]any {
	all := map[string]any{}
	for name, n := range m.Nodes {
		all[name+" state"] = n.State
		if d := n.Decommission; d != nil {
			all[name+" why"] = []any{d.ID, d.Outcome, d.Order, d.Notice, d.Told}
			if end := d.Deadline(); !end.IsZero() {
				all[name+" left"] = end.Sub(at).Seconds()
			}
		}
	}
	return all
}

// Whatever was decided, and at whatever point a snapshot is written, or the log replayed, or both: every state, order, notice and remaining
// second is the same, and stays the same from there on.
func TestRestartKeepsEverySecond(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		straight := New()
		var log []string
		at := t0
		for range 120 {
			at = at.Add(time.Duration(r.IntN(20000)) * time.Millisecond)
			text := written(t, randomCommand(r, at))
			log = append(log, text)
			play(t, straight, text)
		}
		want := written(t, standing(straight, at))
		for range 3 {
			cut := r.IntN(len(log))
			half := New()
			for _, text := range log[:cut] {
				play(t, half, text)
			}
			restored, err := Thaw([]byte(written(t, half.Freeze())))
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range log[cut:] {
				play(t, restored, text)
			}
			if got := written(t, standing(restored, at)); got != want {
				t.Fatalf("seed %d, snapshot after %d commands:\ngot  %s\nwant %s", seed, cut, got, want)
			}
			if written(t, restored) != written(t, straight) {
				t.Fatalf("seed %d, snapshot after %d commands: the machines differ elsewhere", seed, cut)
			}
		}
	}
}

// play applies one entry of the log as raft would.
func play(t *testing.T, m *Registry, text string) {
	t.Helper()
	var c Command
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	_, _ = m.Apply(c) // a refusal is as good an outcome as any
}
