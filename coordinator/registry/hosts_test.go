package registry

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/hosts"
)

// lists makes host lists from words such as "a", "b=60" (seconds), "c=-1".
func lists(include []string, exclude ...string) *hosts.Lists {
	h := &hosts.Lists{ExcludeFile: "/x", Exclude: map[string]hosts.Exclusion{}}
	if include != nil {
		h.IncludeFile, h.Include = "/i", map[string]bool{}
	}
	for _, name := range include {
		h.Include[name] = true
	}
	for _, word := range exclude {
		name, seconds, timed := strings.Cut(word, "=")
		e := hosts.Exclusion{}
		if n, err := strconv.Atoi(seconds); timed && err == nil {
			e.Timeout = new(max(time.Duration(n)*time.Second, hosts.Forever))
		}
		h.Exclude[name] = e
	}
	return h
}

func (s *story) refresh(h *hosts.Lists, graceful bool, timeout time.Duration) {
	s.t.Helper()
	s.must(Command{Do: DoHosts, Hosts: h, Force: !graceful, Order: &Order{Timeout: timeout}})
}

// nodeIn brings node a into a state, at second 0, by what the files or others did.
func (s *story) nodeIn(how string) {
	s.t.Helper()
	s.register("a", "i1", func(c *Command) { c.Facts.PeerAddress = "10.0.0.1:7412" })
	switch how {
	case "ACTIVE":
	case "DECOMMISSIONING by files":
		s.refresh(lists(nil, "a"), true, 100*time.Second)
	case "DECOMMISSIONING by name":
		s.order(100*time.Second, "a")
	case "DECOMMISSIONING by notice":
		s.announce("a", "inc1", "terminate", 120*time.Second)
	case "DECOMMISSIONING by files and notice":
		s.refresh(lists(nil, "a"), true, 100*time.Second)
		s.announce("a", "inc1", "terminate", 120*time.Second)
	case "DECOMMISSIONED by files":
		s.refresh(lists(nil, "a"), true, 100*time.Second)
		s.goodbye("a", "inc1", 0)
	case "DECOMMISSIONED by name":
		s.order(100*time.Second, "a")
		s.goodbye("a", "inc1", 0)
	case "LOST":
		s.plain(DoLose, "a")
	case "LOST, ordered by files":
		s.plain(DoLose, "a")
		s.refresh(lists(nil, "a"), true, 100*time.Second)
	case "SHUTDOWN":
		s.plain(DoUnavailable, "a")
	default:
		s.t.Fatalf("no such state: %s", how)
	}
	s.told = nil
}

// TestDecisionTable is NodesListManager's (handleExcludeNodeList), a row after the other, and what it leaves open.
func TestDecisionTable(t *testing.T) {
	const g, f = true, false // graceful, forced
	free, out, untracked := lists(nil), lists(nil, "a"), lists([]string{"b"})
	for _, c := range []struct {
		name     string
		was      string
		lists    *hosts.Lists
		graceful bool
		state    State
		deadline float64 // at second 10, with 50 s asked for
		told     string
	}{
		// Not excluded, DECOMMISSIONING: recommission, what the files ordered.
		{"back", "DECOMMISSIONING by files", free, g, Active, 0, "HostsRefreshed NodeRecommissioned"},
		{"back, not graceful", "DECOMMISSIONING by files", free, f, Active, 0, "HostsRefreshed NodeRecommissioned"},
		{"back, notice stands", "DECOMMISSIONING by files and notice", free, g, Decommissioning, 120, "HostsRefreshed NodeRecommissioned"},
		{"ordered by name", "DECOMMISSIONING by name", free, g, Decommissioning, 100, "HostsRefreshed"},
		{"own notice", "DECOMMISSIONING by notice", free, g, Decommissioning, 120, "HostsRefreshed"},
		// Not excluded, other: nothing, apart from clearing the files' wish that it leave.
		{"active", "ACTIVE", free, g, Active, 0, "HostsRefreshed"},
		{"done", "DECOMMISSIONED by files", free, g, Decommissioned, 0, "HostsRefreshed NodeRecommissioned"},
		{"done by name", "DECOMMISSIONED by name", free, g, Decommissioned, 0, "HostsRefreshed"},
		{"lost", "LOST", free, g, Lost, 0, "HostsRefreshed"},
		{"lost, ordered", "LOST, ordered by files", free, g, Lost, 0, "HostsRefreshed NodeRecommissioned"},
		{"shut down", "SHUTDOWN", free, f, Shutdown, 0, "HostsRefreshed"},
		// Excluded, graceful, not DECOMM*: graceful; the time is the host's, else the request's.
		{"out", "ACTIVE", out, g, Decommissioning, 60, "HostsRefreshed NodeDecommissioning"},
		{"out by its own time", "ACTIVE", lists(nil, "a=7"), g, Decommissioning, 17, "HostsRefreshed NodeDecommissioning"},
		{"out without limit", "ACTIVE", lists(nil, "a=-1"), g, Decommissioning, 0, "HostsRefreshed NodeDecommissioning"},
		{"out, by address", "ACTIVE", lists(nil, "10.0.0.1=7"), g, Decommissioning, 17, "HostsRefreshed NodeDecommissioning"},
		{"not included", "ACTIVE", untracked, g, Decommissioning, 60, "HostsRefreshed NodeDecommissioning"},
		{"included and excluded", "ACTIVE", lists([]string{"a"}, "a"), g, Decommissioning, 60, "HostsRefreshed NodeDecommissioning"},
		{"notice first", "DECOMMISSIONING by notice", lists(nil, "a=5"), g, Decommissioning, 15, "HostsRefreshed NodeDecommissioning"},
		{"lost and out", "LOST", out, g, Lost, 0, "HostsRefreshed NodeDecommissioning"},
		{"shut down and out", "SHUTDOWN", out, g, Shutdown, 0, "HostsRefreshed NodeDecommissioning"},
		// Excluded, graceful, DECOMMISSIONING, another timeout: it counts from the beginning.
		{"other time", "DECOMMISSIONING by files", out, g, Decommissioning, 50, "DecommissionChanged"},
		{"other time of its own", "DECOMMISSIONING by files", lists(nil, "a=70"), g, Decommissioning, 70, "HostsRefreshed DecommissionChanged"},
		{"other time by name", "DECOMMISSIONING by name", out, g, Decommissioning, 50, "HostsRefreshed DecommissionChanged"},
		{"lost, other time", "LOST, ordered by files", out, g, Lost, 0, "DecommissionChanged"},
		// Excluded, graceful, the same timeout or DECOMMISSIONED: nothing.
		{"same time", "DECOMMISSIONING by files", lists(nil, "a=100"), g, Decommissioning, 100, "HostsRefreshed"},
		{"done already", "DECOMMISSIONED by files", out, g, Decommissioned, 0, ""},
		{"done already by name", "DECOMMISSIONED by name", out, g, Decommissioned, 0, "HostsRefreshed"},
		// Excluded, forced, not DECOMMISSIONED: force; SHUTDOWN where neither list has it.
		{"forced", "ACTIVE", out, f, Decommissioned, 0, "HostsRefreshed NodeDecommissioned"},
		{"forced amid", "DECOMMISSIONING by files", out, f, Decommissioned, 0, "NodeDecommissioned"},
		{"forced amid its notice", "DECOMMISSIONING by notice", out, f, Decommissioned, 0, "HostsRefreshed NodeDecommissioned"},
		{"forced, untracked", "ACTIVE", untracked, f, Shutdown, 0, "HostsRefreshed NodeShutdown"},
		{"forced amid, untracked", "DECOMMISSIONING by name", untracked, f, Shutdown, 0, "HostsRefreshed NodeShutdown"},
		{"forced and done", "DECOMMISSIONED by files", out, f, Decommissioned, 0, ""},
		{"forced, lost", "LOST", out, f, Decommissioned, 0, "HostsRefreshed NodeDecommissioned"},
		{"forced, lost, ordered", "LOST, ordered by files", out, f, Decommissioned, 0, "NodeDecommissioned"},
		{"forced, shut down", "SHUTDOWN", out, f, Decommissioned, 0, "HostsRefreshed NodeDecommissioned"},
		{"forced, shut down, untracked", "SHUTDOWN", untracked, f, Shutdown, 0, "HostsRefreshed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStory(t)
			s.nodeIn(c.was)
			s.at(10).refresh(c.lists, c.graceful, 50*time.Second)
			s.is("a", c.state, c.deadline)
			s.tells(c.told)
			if err := checkMachine(s.Registry); err != nil {
				t.Error(err)
			}
			s.refresh(c.lists, c.graceful, 50*time.Second)
			s.tells("") // the same again is nothing
		})
	}
}

func (s *story) refused(err error) {
	s.t.Helper()
	if !errors.Is(err, ErrExcluded) {
		s.t.Errorf("got %v, want %v", err, ErrExcluded)
	}
}

func registerOf(name, incarnation string) Command {
	return Command{Do: DoRegister, Nodes: []string{name}, Facts: &Facts{Incarnation: incarnation, PeerAddress: name + ":7412"}}
}

func TestHostStories(t *testing.T) {
	for name, tell := range map[string]func(*story){
		"who is kept out may not join": func(s *story) {
			s.refresh(lists([]string{"a", "b"}, "b"), true, time.Hour)
			s.register("a", "i1")
			s.refused(s.do(registerOf("b", "i1")))
			s.refused(s.do(registerOf("c", "i1")))
			s.tells("HostsRefreshed NodeRegistered")
		},
		"who is leaving may join again, until it is done": func(s *story) {
			s.register("a", "i1")
			s.refresh(lists(nil, "a"), true, time.Hour)
			s.at(5).register("a", "i1") // its agent was restarted
			s.is("a", Decommissioning, 3600)
			s.refused(s.do(registerOf("a", "i2"))) // another machine under its name
			s.at(6).goodbye("a", "inc1", 0)
			s.refused(s.do(registerOf("a", "i1")))
			s.register("a", "i1", func(c *Command) { c.Reattach = true }) // it is we who came back
			s.is("a", Decommissioned, 0)
			s.tells("NodeRegistered HostsRefreshed NodeDecommissioning NodeDecommissioned")
		},
		"a node that is done comes back by registering": func(s *story) {
			s.register("a", "i1")
			s.refresh(lists(nil, "a"), true, time.Hour)
			s.goodbye("a", "inc1", 0)
			if s.Nodes["a"].Wish() == nil {
				s.t.Error("the wish does not stand")
			}
			s.refresh(lists(nil), true, time.Hour)
			if s.Nodes["a"].Wish() != nil {
				s.t.Error("the wish stands")
			}
			s.register("a", "i1", func(c *Command) { c.UnderNotice = true }) // it has yet to hear of it
			s.is("a", Decommissioned, 0)
			s.register("a", "i1", func(c *Command) { c.Reattach = true })
			s.is("a", Active, 0)
			s.tells("NodeRegistered HostsRefreshed NodeDecommissioning NodeDecommissioned HostsRefreshed NodeRecommissioned NodeReturned")
		},
		"who was away has all of its time": func(s *story) {
			s.register("a", "i1")
			s.plain(DoLose, "a")
			s.at(10).refresh(lists(nil, "a=60"), true, time.Hour)
			s.at(500).register("a", "i1")
			s.is("a", Decommissioning, 560)
			s.tells("NodeRegistered NodeLost HostsRefreshed NodeDecommissioning NodeReturned")
		},
		"who was away and first speaks of its notice has it too": func(s *story) {
			s.register("a", "i1")
			s.plain(DoLose, "a")
			s.at(10).refresh(lists(nil, "a=60"), true, time.Hour)
			s.at(500).announce("a", "inc1", "terminate", 0)
			s.is("a", Decommissioning, 560)
		},
		"nobody else lets in whom the files keep out": func(s *story) {
			s.register("a", "i1")
			s.announce("a", "inc1", "terminate", 0)
			s.goodbye("a", "inc1", 0)
			s.refresh(lists(nil, "a"), true, time.Hour)
			s.told = nil
			s.withdraw("a", "inc1") // as its heartbeats would, again and again
			s.tells("")
			s.is("a", Decommissioned, 0)
			s.refused(s.do(Command{Do: DoRecommission, Nodes: []string{"a"}}))
			s.is("a", Decommissioned, 0)
			s.refresh(lists(nil), true, time.Hour)
			s.plain(DoRecommission, "a")
			s.is("a", Active, 0)
		},
		"who was shut out and then leaves by itself does not stay": func(s *story) {
			s.register("a", "i1")
			s.refresh(lists([]string{"b"}), false, 0)
			s.is("a", Shutdown, 0)
			s.announce("a", "inc1", "terminate", 0)
			s.withdraw("a", "inc1")
			s.is("a", Decommissioned, 0)
		},
		"forcing spares an order's author": func(s *story) {
			s.register("a", "i1")
			s.order(time.Hour, "a")
			s.refresh(lists(nil, "a"), false, 0)
			s.is("a", Decommissioned, 0)
			s.refresh(lists(nil), false, 0)
			if d := s.Nodes["a"].Decommission; d.Outcome != Forced {
				s.t.Errorf("got outcome %q: the files took back what they did not order", d.Outcome)
			}
		},
		"only those that leave are ended": func(s *story) {
			s.register("a", "i1")
			s.register("b", "i1")
			s.refresh(lists(nil, "a=-1"), true, time.Hour)
			s.at(9).must(Command{Do: DoDecommission, Nodes: []string{"a", "b"}, Order: &Order{}, LeavingOnly: true})
			s.plain(DoTimeout, "a", "b")
			s.is("a", Decommissioned, 0)
			s.is("b", Active, 0)
		},
		"a refusal is told once, and ends with the next good reading": func(s *story) {
			refuse := func(why string) { s.must(Command{Do: DoRefuseHosts, Reason: why}) }
			s.register("a", "i1")
			s.refresh(lists(nil, "b"), true, time.Hour)
			was := s.Hosts.Lists
			refuse("x:3: bad")
			refuse("x:3: bad")
			refuse("x:4: bad")
			if s.Hosts.Lists != was || s.Hosts.Refused == nil {
				s.t.Errorf("got %+v, want the lists from before, and the refusal", s.Hosts)
			}
			s.refused(s.do(registerOf("b", "i1")))
			s.refresh(lists(nil, "b"), true, time.Hour)
			if s.Hosts.Refused != nil {
				s.t.Error("the refusal stands")
			}
			s.tells("NodeRegistered HostsRefreshed HostsRefused HostsRefused HostsRefreshed")
		},
		"all leave in one decision": func(s *story) {
			for _, name := range []string{"c", "a", "b"} {
				s.register(name, "i1")
			}
			s.refresh(lists(nil, "a", "c"), true, time.Hour)
			var order strings.Builder
			for _, e := range s.Events[4:] {
				order.WriteString(e.Node)
			}
			if order.String() != "ac" {
				s.t.Errorf("got events of %q, want ac", order.String())
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

func TestJudge(t *testing.T) {
	sixty := time.Minute
	h := &hosts.Lists{IncludeFile: "/i", ExcludeFile: "/x", Include: map[string]bool{"a": true, "10.0.0.7": true, "2001:db8::1": true, "c.example": true},
		Exclude: map[string]hosts.Exclusion{"a": {}, "10.0.0.9": {Timeout: &sixty}, "d": {ByInclude: true}}}
	for _, c := range []struct{ name, address, why string }{
		{"A", "h:1", "excluded by /x"},
		{"a", "10.0.0.9:1", "excluded by /x"},
		{"b", "10.0.0.7:1", ""},
		{"b", "[::ffff:10.0.0.7]:1", ""},
		{"b", "[2001:DB8:0::1]:1", ""},
		{"b", "C.Example.:1", ""},
		{"b", "10.0.0.8:1", "not included by /i"},
		{"d", "10.0.0.7:1", "excluded by /i"},
	} {
		if got := h.Judge(c.name, c.address); got.Why != c.why {
			t.Errorf("%s at %s: got %q, want %q", c.name, c.address, got.Why, c.why)
		}
	}
	if got := h.Judge("a", "10.0.0.9:1").Timeout; got == nil || *got != sixty {
		t.Errorf("got timeout %v, want that of the address: the name has none", got)
	}
	h.Exclude["a"] = hosts.Exclusion{Timeout: new(time.Second)}
	if got := h.Judge("a", "10.0.0.9:1").Timeout; got == nil || *got != time.Second {
		t.Errorf("got timeout %v, want that of the name", got)
	}
}
