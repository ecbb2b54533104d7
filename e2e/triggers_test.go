package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/preemption/ec2fake"
)

// gone waits until the node is DECOMMISSIONED. It fails the test unless all blocks moved, and the manifest names that
// kind and source of notice.
func (n *node) gone(kind, source string) manifestView {
	n.f.t.Helper()
	n.f.until(n.is("DECOMMISSIONED"))
	m := n.manifest()
	n.allMoved(m)
	if m.Incident.Kind != kind || m.Incident.Source != source {
		n.f.t.Errorf("manifest of %s: got %s from %s, want %s from %s", n.host, m.Incident.Kind, m.Incident.Source, kind, source)
	}
	return m
}

func TestTriggers(t *testing.T) {
	f := newFleet(t)
	cloud := ec2fake.New(ec2fake.Instance{ID: "i-1"})
	metadata := httptest.NewServer(cloud)
	defer metadata.Close()
	spot := f.agent("host-spot", fmt.Sprintf("cloud: {provider: ec2, endpoint: %q, poll: 100ms}", metadata.URL), noRoom)
	self, script, power := f.agent("host-self", noRoom), f.agent("host-script", noRoom), f.agent("host-power", noRoom)
	peer := f.agent("host-peer")
	for _, n := range []*node{spot, self, script, power} {
		n.fill(5, 200<<10)
	}
	f.up()

	at := time.Now().Add(2 * time.Minute).Truncate(time.Second)
	cloud.Interrupt("terminate", at)
	m := spot.gone("terminate", "ec2")
	f.sameDeadline("the manifest", m.Incident.Deadline, &at)
	spot.verb("cancel").exits(1).tells("ec2 says terminate")
	f.verb("recommission", "host-spot").exits(1).tells("own notice", "cancel")
	cloud.Withdraw()
	f.until(spot.is("ACTIVE"))

	from := time.Now()
	self.verb("decommission", "--self", "--timeout", "60s", "--reason", "a person's").exits(0).tells("inc-", "deadline")
	f.comes("a minute after it was said", self.status().Notice.Deadline, from, time.Minute)
	m = self.gone("manual", "manual")
	f.comes("the manifest", m.Incident.Deadline, from, time.Minute)
	self.verb("cancel", "--reason", "called off").exits(0).tells("withdrawn")
	f.until(self.is("ACTIVE"))
	self.verb("cancel").exits(3).tells("nothing to withdraw")

	env := []string{"LIFEBOAT_SOCKET=" + script.socket, "LIFEBOAT_BIN=" + binary}
	run(t, nil, env, "../packaging/bin/decommission-self", "--deadline", "soon").exits(2)
	run(t, nil, env, "../packaging/bin/decommission-self", "--deadline", "60", "--reason", "a script's", "--wait").exits(0).tells("5 (")
	script.gone("manual", "manual")
	script.verb("recommission", "--self").exits(0)
	f.until(script.is("ACTIVE"))

	power.signal(syscall.SIGPWR)
	m = power.gone("manual", "signal")
	if m.Incident.Deadline != nil {
		t.Errorf("SIGPWR names no deadline, the manifest has %s", m.Incident.Deadline)
	}
	power.verb("cancel").exits(0)
	f.until(power.is("ACTIVE"))

	for _, n := range []*node{spot, self, script, power} {
		peer.onSocket().alone().serves(t, n.blocks)
	}
}

// A signal that comes while an agent is starting, here because its cloud is slow, is acted upon once it has started.
func TestSignalsAmidTheStart(t *testing.T) {
	f := newFleet(t)
	cloud := ec2fake.New(ec2fake.Instance{ID: "i-1"})
	asked, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(asked); <-answer })
		cloud.ServeHTTP(w, r)
	}))
	defer metadata.Close()
	n := f.agent("host-a", fmt.Sprintf("cloud: {provider: ec2, endpoint: %q, poll: 100ms}", metadata.URL), noRoom)
	peer := f.agent("host-b")
	n.fill(5, 200<<10)
	f.coordinator.start()
	peer.start()
	f.until(peer.is("ACTIVE"))
	n.start()
	<-asked
	n.signal(syscall.SIGHUP)
	n.signal(syscall.SIGPWR)
	close(answer)
	n.gone("manual", "signal")
}

func TestOperatorDecommissions(t *testing.T) {
	f := newFleet(t)
	a, b := f.agent("host-a"), f.agent("host-b")
	a.fill(20, 1<<20)
	a.shuffle(4, 512<<10)
	f.up()

	s := f.verb("decommission", "host-a", "--timeout", "60s", "--reason", "rack 7", "--wait").exits(0).tells("DECOMMISSIONED")
	if !strings.Contains(s.stderr, "blocks") {
		t.Errorf("--wait shows no progress on stderr: %q", s.stderr)
	}
	a.gone("decommission", "operator")
	a.located()
	f.tables()

	f.verb("recommission", "host-a").exits(0)
	f.until(a.staying)
	a.onSocket().serves(t, a.blocks) // a node keeps its own copies

	f.verb("decommission", "host-x").exits(3).tells("host-x")
	f.verb("decommission").exits(2)
	f.verb("node", "host-x").exits(3)
	f.verb("manifest", "host-b").exits(3)
	b.verb("manifest", "--self").exits(3)
}

// staying returns nil once coordinator and agent agree that the node stays.
func (n *node) staying() error {
	if v, s := n.seen(), n.status(); v.State != "ACTIVE" || !v.Schedulable || v.Notice != nil || s.Notice != nil {
		return fmt.Errorf("%s stays not yet: %+v at the coordinator, notice %+v at the agent", n.host, v, s.Notice)
	}
	return nil
}

func TestDrainedAgainMakesNoSecondCopies(t *testing.T) {
	f := newFleet(t)
	a, b := f.agent("host-a"), f.agent("host-b")
	a.fill(20, 1<<20)
	a.shuffle(4, 512<<10)
	f.up()
	for drains := range int64(2) {
		f.verb("decommission", "host-a", "--wait").exits(0)
		a.gone("decommission", "operator")
		n := int64(len(a.wholes()))
		if held := b.status().Held; held < n || held > n+drains+1 {
			t.Errorf("the peer holds %d blocks, want %d and an account of each drain", held, n)
		}
		f.verb("recommission", "host-a").exits(0)
		f.until(a.staying)
	}
}

// An operator takes a decommission back and orders another one. Blocks that were written in between must move too, even
// if the agent hears of both orders at once.
func TestSecondOrderComesBeforeTheFirstIsForgotten(t *testing.T) {
	f := newFleet(t, "heartbeat: 2s")
	a, b := f.agent("host-a"), f.agent("host-b")
	a.fill(5, 100<<10)
	f.up()
	f.verb("decommission", "host-a", "--wait").exits(0)
	a.gone("decommission", "operator")
	fresh := block{id: "cache/-/host-a/fresh.bin", whole: "cache/-/host-a/fresh.bin", path: filepath.Join(a.cache(), "host-a", "fresh.bin")}
	fresh.rewrite(t, 5000)
	a.blocks = append(a.blocks, fresh)
	f.until(func() error { // so that two seconds pass before the next beat
		if age := a.seen().LastHeartbeat; age == nil || *age > 0.5 {
			return fmt.Errorf("host-a has not just beaten")
		}
		return nil
	})
	f.verb("recommission", "host-a").exits(0)
	f.verb("decommission", "host-a", "--timeout", "40s", "--wait").exits(0)
	a.gone("decommission", "operator")
	b.onSocket().alone().serves(t, a.blocks)
}

func TestOperatorTakesBackMidDrain(t *testing.T) {
	f := newFleet(t)
	a, b := f.agent("host-a", slow), f.agent("host-b")
	a.fill(30, 8<<20)
	f.up()
	f.verb("decommission", "host-a").exits(0)
	a.underWay(3)
	f.verb("recommission", "host-a").exits(0)
	f.until(a.staying)
	f.until(b.knows(1))              // it is a peer again
	a.onSocket().serves(t, a.blocks) // a node keeps its own copies
	a.verb("decommission", "--self", "--timeout", "90s").exits(0)
	a.underWay(3)
	a.verb("cancel").exits(0)
	f.until(a.is("ACTIVE"))
}

func TestNodesLeaveTogether(t *testing.T) {
	f := newFleet(t)
	a, b, c := f.agent("host-a"), f.agent("host-b"), f.agent("host-c")
	for _, n := range []*node{a, b} {
		n.fill(15, 1<<20)
		n.shuffle(4, 512<<10)
	}
	f.up()
	f.verb("decommission", "host-a", "host-b", "--timeout", "60s", "--wait").exits(0)
	for _, n := range []*node{a, b} {
		if m := n.manifest(); m.Blocks.Lost != 0 || m.Blocks.Moved < int64(len(n.wholes())) {
			t.Errorf("manifest of %s: got %+v, want at least %d moved and none lost", n.host, m.Blocks, len(n.wholes()))
		}
	}
	a.kill()
	b.kill()
	c.onSocket().alone().serves(t, slices.Concat(a.blocks, b.blocks))
}

func TestBlocksAreCarriedOn(t *testing.T) {
	f := newFleet(t)
	a, b, c := f.agent("host-a", noRoom), f.agent("host-b"), f.agent("host-c")
	a.fill(10, 500<<10)
	a.shuffle(6, 500<<10)
	b.fill(3, 50<<10)
	f.coordinator.start()
	a.start()
	b.start()
	f.until(a.knows(1))
	f.verb("decommission", "host-a", "--wait").exits(0)
	a.gone("decommission", "operator")
	a.kill()
	c.start()
	f.until(b.knows(1))
	f.verb("decommission", "host-b", "--wait").exits(0)
	if m, want := b.manifest(), int64(len(a.wholes())+len(b.wholes())+1); m.Blocks.Moved != want || m.Blocks.Lost != 0 {
		t.Errorf("manifest of host-b: got %+v, want %d moved: its own, those it held for host-a, and the account of that", m.Blocks, want)
	}
	b.kill()
	c.onSocket().alone().serves(t, slices.Concat(a.blocks, b.blocks))
	f.gets(few(a.blocks, 4))
}

// tables runs the verbs that print tables, as a person at a terminal does, and reads the coordinator's pages.
func (f *fleet) tables() {
	f.t.Helper()
	f.verb("nodes").exits(0).tells("host-a", "host-b", "ACTIVE", "DECOMMISSIONED")
	f.verb("node", "host-a").exits(0).tells("host-a", "rack 7")
	f.verb("status").exits(0).tells("c1")
	f.verb("events").exits(0).tells("NodeRegistered", "NodeDecommissioning", "NodeDecommissioned")
	f.nodes[1].verb("status").exits(0).tells("host-b", "for others")
	f.verb("blocks").exits(0).tells("cache/-/host-a/", "host-b")
	f.verb("manifest", "host-a", "--all").exits(0).tells("moved", "cache/-/host-a/")
	f.verb("version").exits(0)

	id, err := certs.LoadDir(f.tls)
	if err != nil {
		f.t.Fatal(err)
	}
	known := &http.Client{Transport: &http.Transport{TLSClientConfig: id.Client([]string{"http/1.1"}, certs.Name{Role: certs.RoleCoordinator}), DisableKeepAlives: true}}
	resp, err := known.Get("https://" + f.http + "/nodes")
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	var nodes []nodeView
	if err := json.NewDecoder(resp.Body).Decode(&nodes); err != nil || len(nodes) != len(f.nodes) {
		f.t.Errorf("GET /nodes: got %d nodes (%v), want %d", len(nodes), err, len(f.nodes))
	}
}
