package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/hosts"
)

// story applies commands to a registry at seconds since t0, and gathers the events.
type story struct {
	t *testing.T
	*Registry
	now  time.Time
	told []string
}

func newStory(t *testing.T) *story { return &story{t: t, Registry: New(), now: t0} }

func (s *story) at(seconds float64) *story {
	s.now = t0.Add(time.Duration(seconds * float64(time.Second)))
	return s
}

func (s *story) do(c Command) error {
	c.Version, c.At = CommandVersion, s.now
	events, err := s.Apply(c)
	for _, e := range events {
		s.told = append(s.told, e.Type)
	}
	return err
}

func (s *story) must(c Command) {
	s.t.Helper()
	if err := s.do(c); err != nil {
		s.t.Fatalf("%s: %v", c.Do, err)
	}
}

func (s *story) register(name, incarnation string, also ...func(*Command)) {
	s.t.Helper()
	c := Command{Do: DoRegister, Nodes: []string{name}, Facts: &Facts{Incarnation: incarnation, PeerAddress: name + ":7412"}}
	for _, f := range also {
		f(&c)
	}
	s.must(c)
}

func (s *story) order(timeout time.Duration, names ...string) {
	s.t.Helper()
	s.must(Command{Do: DoDecommission, Nodes: names, Order: &Order{Timeout: timeout, Reason: "kernel"}})
}

func (s *story) announce(name, incident, kind string, left time.Duration) {
	s.t.Helper()
	n := &Notice{Incident: incident, Kind: kind, Source: "ec2"}
	if left != 0 {
		n.Deadline = s.now.Add(left)
	}
	s.must(Command{Do: DoAnnounce, Nodes: []string{name}, Incarnation: s.Nodes[name].Incarnation, Notice: n})
}

func (s *story) plain(do Verb, names ...string) {
	s.t.Helper()
	s.must(Command{Do: do, Nodes: names})
}

func (s *story) withdraw(name, incident string) {
	s.t.Helper()
	s.must(Command{Do: DoWithdraw, Nodes: []string{name}, Incident: incident})
}

func (s *story) goodbye(name, incident string, lost int64) {
	s.t.Helper()
	n := s.Nodes[name]
	s.must(Command{Do: DoGoodbye, Nodes: []string{name}, Manifest: &ManifestRef{File: name + incident, Node: name, Incarnation: n.Incarnation, Incident: incident, At: s.now, Lost: lost}})
}

// is checks a node's state, and the seconds since t0 at which its decommission ends (0: it does not).
func (s *story) is(name string, state State, deadline float64) {
	s.t.Helper()
	n := s.Nodes[name]
	if n.State != state {
		s.t.Errorf("node %s: got %s, want %s", name, n.State, state)
	}
	var want time.Time
	if deadline != 0 {
		want = t0.Add(time.Duration(deadline * float64(time.Second)))
	}
	if n.Leaving() {
		if got := n.Decommission.Deadline(); !got.Equal(want) {
			s.t.Errorf("node %s: got deadline %s, want %s", name, got, want)
		}
	}
}

// tells checks the events since the last call.
func (s *story) tells(want string) {
	s.t.Helper()
	if got := strings.Join(s.told, " "); got != want {
		s.t.Errorf("got events %q, want %q", got, want)
	}
	s.told = nil
}

func TestStories(t *testing.T) {
	stories := map[string]func(*story){
		"an order is carried out": func(s *story) {
			s.register("a", "i1")
			s.is("a", Active, 0)
			s.at(10).order(90*time.Second, "a")
			s.is("a", Decommissioning, 100)
			s.at(11).announce("a", "inc1", Echo, 89*time.Second)
			s.is("a", Decommissioning, 100)
			s.at(40).goodbye("a", "inc1", 0)
			s.is("a", Decommissioned, 0)
			s.at(200).plain(DoRecommission, "a")
			s.is("a", Active, 0)
			s.tells("NodeRegistered NodeDecommissioning WorkerDecommission NodeDecommissioned NodeRecommissioned")
		},
		"another timeout starts no new clock": func(s *story) {
			s.register("a", "i1")
			s.order(time.Hour, "a")
			s.at(50).order(time.Minute, "a")
			s.is("a", Decommissioning, 60)
			s.at(55).order(time.Minute, "a")
			s.at(56).order(-1, "a")
			s.is("a", Decommissioning, 0)
			s.at(57).order(30*time.Second, "a")
			s.plain(DoTimeout, "a")
			s.is("a", Decommissioned, 0)
			s.tells("NodeRegistered NodeDecommissioning DecommissionChanged DecommissionChanged DecommissionChanged NodeDecommissioned")
		},
		"the clock ends a silent leaver, and not before": func(s *story) {
			s.register("a", "i1")
			s.order(90*time.Second, "a")
			s.at(60).plain(DoLose, "a")
			s.at(89.999).plain(DoTimeout, "a")
			s.is("a", Decommissioning, 90)
			s.at(90).plain(DoTimeout, "a")
			s.is("a", Decommissioned, 0)
			if got := s.Nodes["a"].Decommission.Outcome; got != TimedOut {
				s.t.Errorf("got outcome %q, want %q", got, TimedOut)
			}
			s.at(91).goodbye("a", "inc1", 3) // its account is wanted all the same
			s.is("a", Decommissioned, 0)
			s.tells("NodeRegistered NodeDecommissioning NodeDecommissioned ManifestReceived")
		},
		"a notice, repeated, withdrawn": func(s *story) {
			s.register("a", "i1")
			s.announce("a", "inc1", "terminate", 120*time.Second)
			s.is("a", Decommissioning, 120)
			s.at(5).announce("a", "inc1", "terminate", 115200*time.Millisecond) // the same, a little late
			s.is("a", Decommissioning, 120)
			s.at(6).announce("a", "inc1", "terminate", 60*time.Second)
			s.is("a", Decommissioning, 66)
			s.at(7).withdraw("a", "inc-other")
			s.withdraw("a", "inc1")
			s.is("a", Active, 0)
			s.withdraw("a", "inc1")
			s.tells("NodeRegistered WorkerDecommission DecommissionChanged NodeRecommissioned")
		},
		"a notice meets an order: the earlier deadline binds, each goes alone": func(s *story) {
			s.register("a", "i1")
			s.order(time.Hour, "a")
			s.at(10).announce("a", "inc1", "terminate", 120*time.Second)
			s.is("a", Decommissioning, 130)
			s.at(11).withdraw("a", "inc1")
			s.is("a", Decommissioning, 3600)
			s.at(12).announce("a", "inc2", "terminate", 120*time.Second)
			s.at(13).plain(DoRecommission, "a")
			s.is("a", Decommissioning, 132)
			if err := s.do(Command{Do: DoRecommission, Nodes: []string{"a"}}); !errors.Is(err, ErrOwnNotice) {
				s.t.Errorf("got %v, want %v", err, ErrOwnNotice)
			}
			s.tells("NodeRegistered NodeDecommissioning WorkerDecommission NoticeWithdrawn WorkerDecommission NodeRecommissioned")
		},
		"the echo of an order that was taken back is nothing": func(s *story) {
			s.register("a", "i1")
			s.order(time.Hour, "a")
			s.plain(DoRecommission, "a")
			s.announce("a", "inc1", Echo, time.Hour)
			s.is("a", Active, 0)
			s.tells("NodeRegistered NodeDecommissioning NodeRecommissioned")
		},
		"lost and back": func(s *story) {
			s.register("a", "i1")
			s.at(31).plain(DoLose, "a")
			s.is("a", Lost, 0)
			s.plain(DoLose, "a")
			s.at(40).register("a", "i1")
			s.is("a", Active, 0)
			s.tells("NodeRegistered NodeLost NodeReturned")
		},
		"an order without limit ends as lost, and stands when the node is back": func(s *story) {
			s.register("a", "i1")
			s.order(-1, "a")
			id := s.Nodes["a"].Decommission.ID
			s.at(31).plain(DoLose, "a")
			s.is("a", Lost, 0)
			s.at(99).register("a", "i1")
			s.is("a", Decommissioning, 0)
			if d := s.Nodes["a"].Decommission; d.ID != id || !d.StartedAt.Equal(t0) {
				s.t.Errorf("got decommission %s of %s, want %s of %s", d.ID, d.StartedAt, id, t0)
			}
			s.at(140).plain(DoLose, "a")
			s.plain(DoRecommission, "a")
			s.is("a", Lost, 0)
			s.at(150).register("a", "i1")
			s.is("a", Active, 0)
			s.tells("NodeRegistered NodeDecommissioning NodeLost NodeReturned NodeLost NodeRecommissioned NodeReturned")
		},
		"a restart is announced": func(s *story) {
			s.register("a", "i1")
			s.must(Command{Do: DoUnavailable, Nodes: []string{"a"}, Incarnation: "i1"})
			s.at(1000).plain(DoLose, "a")
			s.is("a", Shutdown, 0)
			s.register("a", "i1")
			s.is("a", Active, 0)
			s.order(time.Hour, "a")
			s.must(Command{Do: DoUnavailable, Nodes: []string{"a"}, Incarnation: "i1"})
			s.is("a", Decommissioning, 1000+3600)
			s.tells("NodeRegistered NodeShutdown NodeReturned NodeDecommissioning")
		},
		"a drained node that registers stays, unless it is we who came back": func(s *story) {
			s.register("a", "i1")
			s.announce("a", "inc1", "manual", 0)
			s.goodbye("a", "inc1", 0)
			s.register("a", "i1", func(c *Command) { c.Reattach = true })
			s.is("a", Decommissioned, 0)
			s.register("a", "i1", func(c *Command) { c.UnderNotice = true })
			s.is("a", Decommissioned, 0)
			s.announce("a", "inc1", "manual", 0) // it repeats itself
			s.is("a", Decommissioned, 0)
			s.register("a", "i1")
			s.is("a", Active, 0)
			s.goodbye("a", "inc1", 0) // late on the way
			s.is("a", Active, 0)
			s.tells("NodeRegistered WorkerDecommission NodeDecommissioned NodeReturned")
		},
		"another machine under the name": func(s *story) {
			s.register("a", "i1")
			id := s.Nodes["a"].ID
			if s.Nodes["a"].Namesake {
				s.t.Error("the first of a name is a namesake")
			}
			s.order(time.Hour, "a")
			s.register("a", "i2")
			s.is("a", Active, 0)
			if n := s.Nodes["a"]; n.ID == id || n.Decommission != nil || !n.Namesake {
				s.t.Errorf("got %s with decommission %v, a namesake: %t, want another id, none and one", n.ID, n.Decommission, n.Namesake)
			}
			if err := s.do(Command{Do: DoAnnounce, Nodes: []string{"a"}, Incarnation: "i1", Notice: &Notice{Incident: "x"}}); !errors.Is(err, ErrIncarnation) {
				s.t.Errorf("got %v, want %v", err, ErrIncarnation)
			}
			s.tells("NodeRegistered NodeDecommissioning NodeReplaced NodeRegistered")
		},
		"a goodbye out of the blue": func(s *story) {
			s.register("a", "i1")
			s.goodbye("a", "inc1", 2)
			s.is("a", Decommissioned, 0)
			s.goodbye("a", "inc1", 2)
			if got := len(s.Manifests); got != 1 {
				s.t.Errorf("got %d manifests, want the repeated one in place of the first", got)
			}
			s.tells("NodeRegistered NodeDecommissioned ManifestReceived")
		},
		"lost blocks are back with their node": func(s *story) {
			s.register("a", "i1")
			s.announce("a", "inc1", "manual", 0)
			s.at(5).goodbye("a", "inc1", 2)
			ref := s.Manifests[0]
			if !s.InForce(ref) {
				s.t.Error("a drained node's losses are not in force")
			}
			s.at(6).withdraw("a", "inc1")
			if s.InForce(ref) {
				s.t.Error("the losses of a node that stayed are in force")
			}
			s.at(7).register("a", "i2")
			if !s.InForce(ref) {
				s.t.Error("the losses of a machine that was replaced are not in force")
			}
		},
		"one unknown node refuses the whole order": func(s *story) {
			s.register("a", "i1")
			if err := s.do(Command{Do: DoDecommission, Nodes: []string{"a", "b"}, Order: &Order{}}); !errors.Is(err, ErrUnknownNode) {
				s.t.Errorf("got %v, want %v", err, ErrUnknownNode)
			}
			s.is("a", Active, 0)
		},
		"what is gone is forgotten in the end": func(s *story) {
			s.register("a", "i1")
			s.register("b", "i1")
			s.plain(DoLose, "a")
			s.at(ForgetAfter.Seconds()).plain(DoForget, "a", "b")
			s.is("a", Lost, 0)
			s.at(ForgetAfter.Seconds()+1).plain(DoForget, "a", "b")
			s.is("b", Active, 0)
			if _, ok := s.Nodes["a"]; ok {
				s.t.Error("node a is still there")
			}
			s.tells("NodeRegistered NodeRegistered NodeLost NodeForgotten")
		},
	}
	for name, tell := range stories {
		t.Run(name, func(t *testing.T) { tell(newStory(t)) })
	}
}

func TestUnknownVerbIsRefused(t *testing.T) {
	s := newStory(t)
	s.register("a", "i1")
	if err := s.do(Command{Do: "dance", Nodes: []string{"a"}}); err == nil {
		t.Error("a command that is not known was applied")
	}
}

func TestEventsAreBounded(t *testing.T) {
	s := newStory(t)
	s.register("a", "i1")
	for range 3 * KeptEvents / 2 {
		s.plain(DoLose, "a")
		s.register("a", "i1")
	}
	if got := len(s.Events); got < KeptEvents || got >= 2*KeptEvents {
		t.Errorf("got %d events kept, want %d to %d", got, KeptEvents, 2*KeptEvents)
	}
	for i, e := range s.Events {
		if want := s.LastEvent - uint64(len(s.Events)-1-i); e.Index != want {
			t.Fatalf("event %d: got index %d, want %d", i, e.Index, want)
		}
	}
}

// randomCommand makes any command, sensible or not.
func randomCommand(r *rand.Rand, at time.Time) Command {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	c := Command{Version: CommandVersion, At: at, Nodes: []string{pick("a", "b", "c")}}
	verbs := []Verb{DoRegister, DoRegister, DoAnnounce, DoWithdraw, DoUnavailable, DoGoodbye, DoDecommission, DoRecommission, DoLose, DoTimeout, DoDelay, DoForget, DoHosts, DoHosts, DoRefuseHosts, DoTell, DoBeatApp, DoEndApps, DoLapseApps, DoResume, DoDeactivate, DoReactivate, DoSchedule, DoMachinesDown, DoMachinesDown, DoMachinesUp}
	incident, incarnation := pick("x", "y"), pick("1", "1", "1", "2")
	for _, name := range []string{"a", "b"} {
		if r.IntN(3) == 0 {
			c.Executors = map[string][]Executor{name: {{Workload: "w", App: pick("p", "q"), ID: pick("7", "8")}, {Workload: "v"}}}
		}
	}
	switch c.Do = verbs[r.IntN(len(verbs))]; c.Do {
	case DoRegister:
		c.Facts = &Facts{Incarnation: incarnation, PeerAddress: pick("h:1", "h:2")}
		c.UnderNotice, c.Reattach = r.IntN(3) == 0, r.IntN(3) == 0
	case DoAnnounce:
		c.Incarnation = incarnation
		c.Notice = &Notice{Incident: incident, Kind: pick("terminate", "manual", Echo)}
		if r.IntN(2) == 0 {
			c.Notice.Deadline = at.Add(time.Duration(r.IntN(100)) * time.Second)
		}
	case DoWithdraw:
		c.Incident, c.Incarnation = incident, incarnation
	case DoGoodbye:
		c.Incarnation = incarnation
		c.Manifest = &ManifestRef{File: fmt.Sprint(r.Uint64()), Node: c.Nodes[0], Incarnation: incarnation, Incident: incident, At: at}
	case DoHosts:
		c.Nodes, c.Order, c.Force = nil, &Order{Timeout: max(time.Duration(r.IntN(100)-20)*time.Second, hosts.Forever)}, r.IntN(4) == 0
		all := [][]string{nil, {"a"}, {"a", "b"}, {"a", "b", "c"}}
		if c.Hosts = lists(all[r.IntN(4)], all[r.IntN(4)]...); r.IntN(8) == 0 {
			c.Hosts = nil
		}
	case DoRefuseHosts:
		c.Nodes, c.Reason = nil, pick("x", "y")
	case DoBeatApp, DoEndApps, DoLapseApps, DoResume:
		c.Nodes, c.Apps, c.Reason = nil, []string{pick("p", "q"), "r"}[:1+r.IntN(2)], "x"
		if c.Owner = pick("", "app:1", "app:2"); c.Do == DoBeatApp {
			c.Owner, c.Lease = pick("app:1", "app:2"), time.Duration(1+r.IntN(2))*time.Minute
		}
	case DoSchedule:
		c.Nodes, c.Add, c.Renews, c.After = nil, r.IntN(2) == 0, r.IntN(4) == 0, time.Minute
		for range r.IntN(3) {
			w := Outage{Start: at.Add(time.Duration(r.IntN(200)) * time.Second).UnixNano(), Machines: []Scheduled{{Hostname: pick("a", "B", "c")}}}
			if r.IntN(2) == 0 {
				w.Duration = new(time.Duration(r.IntN(100)) * time.Second)
			}
			if r.IntN(4) == 0 {
				w.Machines = append(w.Machines, Scheduled{Hostname: pick("h", "d")})
			}
			c.Windows = append(c.Windows, w)
		}
	case DoMachinesDown, DoMachinesUp:
		c.Nodes, c.Unsaid, c.Machines = nil, r.IntN(2) == 0, []Scheduled{{Hostname: pick("A", "b", "c", "h")}}
		c.Order = &Order{Timeout: max(time.Duration(r.IntN(200)-20)*time.Second, hosts.Forever) * time.Duration(r.IntN(8)&1)}
	case DoLose:
		c.Overdue = r.IntN(3) == 0
	case DoDelay:
		c.After = time.Duration(r.IntN(60)) * time.Second
	case DoForget:
		c.After, c.Named = time.Duration(r.IntN(200))*time.Second, r.IntN(3) == 0
	case DoDecommission:
		c.LeavingOnly = r.IntN(4) == 0
		c.Order = &Order{Timeout: max(time.Duration(r.IntN(200)-20)*time.Second, hosts.Forever) * time.Duration(r.IntN(8)&1)}
		c.Order.By = pick("", "", ByMaintenance)
		c.Drain, c.Order.Gone = r.IntN(3) == 0, r.IntN(8) == 0
		if r.IntN(3) == 0 {
			c.Timeouts = map[string]time.Duration{"a": max(time.Duration(r.IntN(100)-20)*time.Second, hosts.Forever)}
		}
		c.Nodes = append(c.Nodes, "a")
		if c.Nodes[0] == "a" {
			c.Nodes = c.Nodes[:1]
		}
	}
	return c
}

// checkMachine checks what must be true after any command.
func checkMachine(m *Registry) error {
	for name, n := range m.Nodes {
		d := n.Decommission
		switch {
		case n.Name != name || n.ID == "" || n.Incarnation == "":
			return fmt.Errorf("node %q is %+v", name, n)
		case n.Leaving() && (d == nil || d.Outcome != running || !d.EndedAt.IsZero()):
			return fmt.Errorf("node %s leaves with decommission %+v", name, d)
		case n.Leaving() && d.Order == nil && d.Notice == nil:
			return fmt.Errorf("node %s leaves for nobody", name)
		case n.State == Active && m.Hosts.Lists.Judge(name, n.PeerAddress).Excluded():
			return fmt.Errorf("node %s is ACTIVE and excluded", name)
		case n.State == Active && m.Schedule.Of(name, n.PeerAddress, t0).Mode() == ModeDown:
			return fmt.Errorf("node %s is ACTIVE, and its machine is DOWN", name)
		case n.Gone && (n.State != Decommissioned || !slices.Contains(m.Banned, n.Incarnation)):
			return fmt.Errorf("node %s is GONE, %s, and of those that are banned: %t", name, n.State, slices.Contains(m.Banned, n.Incarnation))
		case n.Leaving() && d.Order != nil && d.Order.At.IsZero():
			return fmt.Errorf("node %s leaves by a clock that has not begun", name)
		case !n.Leaving() && d != nil && (d.Outcome == running || d.EndedAt.IsZero()):
			return fmt.Errorf("node %s is %s with a running decommission", name, n.State)
		}
	}
	for i, e := range m.Events {
		if e.Index != m.LastEvent-uint64(len(m.Events)-1-i) {
			return fmt.Errorf("event %d has index %d of %d", i, e.Index, m.LastEvent)
		}
	}
	return nil
}

// A registry that was written and read back at any point goes on like one that was not; a frozen one stays as it is; a command that is said
// to change nothing changes nothing.
func FuzzMachine(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, uint16(150))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		r := rand.New(rand.NewPCG(seed, 0))
		one, two := New(), New()
		at := t0
		for range steps % 512 {
			at = at.Add(time.Duration(r.IntN(40)) * time.Second)
			c := randomCommand(r, at)
			text := written(t, c)
			before := one.Freeze()
			was := written(t, before)
			idle := one.Idle(c)

			events, err := one.Apply(c)
			silent := c.Do == DoBeatApp && err == nil // tells of nothing
			if (err != nil || len(events) == 0) && !silent && written(t, one) != was {
				t.Fatalf("%s: refused or idle (%v), and changed the machine", text, err)
			}
			if idle && (len(events) > 0 || written(t, one) != was) {
				t.Fatalf("%s: said to be idle, told %v", text, events)
			}
			if written(t, before) != was {
				t.Fatalf("%s: changed a frozen machine", text)
			}
			if err := checkMachine(one); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			var again Command
			if err := json.Unmarshal([]byte(text), &again); err != nil {
				t.Fatal(err)
			}
			if r.IntN(8) == 0 {
				if two, err = Thaw([]byte(written(t, two))); err != nil {
					t.Fatal(err)
				}
			}
			told, _ := two.Apply(again)
			if !reflect.DeepEqual(told, events) || written(t, two) != written(t, one) {
				t.Fatalf("%s: two machines differ", text)
			}
		}
	})
}
