package e2e_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/client"
)

// failovers is how many failovers each test has: go test ./e2e -run 'FailoverLoad|Figures' -failovers 50 -v
var failovers = flag.Int("failovers", 3, "how many failovers are measured")

// trio is a fleet with three coordinators.
type trio struct {
	*fleet
	all   []*daemon
	grpcs []string
	https []string
	peers []string // as in the settings
}

func newTrio(t *testing.T, extra ...string) *trio {
	t.Helper()
	f := newFleet(t)
	v := &trio{fleet: f}
	names := []string{"c1", "c2", "c3"}
	for i, name := range names {
		at := f.grpc
		if i > 0 {
			at = freeAddress(t)
		}
		v.place(name, at)
	}
	for _, name := range names {
		v.coordinator(name, extra...)
	}
	f.coordinator, f.grpc = v.all[0], strings.Join(v.grpcs, ",")
	t.Cleanup(func() {
		for _, d := range v.all[1:] {
			d.kill()
			d.check()
			if t.Failed() {
				d.dump()
			}
		}
	})
	for _, d := range v.all[1:] {
		d.start()
	}
	return v
}

// place gives a future coordinator its addresses and its certificate.
func (v *trio) place(name, grpc string) {
	v.t.Helper()
	if name != "c1" {
		run(v.t, nil, nil, binary, "tls", "issue", "--dir", v.tls, "--coordinator", name, "--ip", "127.0.0.1").exits(0)
	}
	v.grpcs, v.https = append(v.grpcs, grpc), append(v.https, freeAddress(v.t))
	v.peers = append(v.peers, fmt.Sprintf("{name: %s, address: %q}", name, grpc))
}

// coordinator writes the settings of a coordinator that has its place; its peers are all that have a place by now.
func (v *trio) coordinator(name string, extra ...string) *daemon {
	v.t.Helper()
	d := &daemon{t: v.t, name: name, log: filepath.Join(v.dir, name+".log")}
	i := len(v.all)
	if was := v.at(name); was >= 0 {
		i, d = was, v.all[was]
	} else {
		v.all = append(v.all, d)
	}
	d.args = []string{"coordinator", "--config", v.write(name+".yaml", instead([]string{
		"name: " + name,
		fmt.Sprintf("listen: {grpc: %q, http: %q}", v.grpcs[i], v.https[i]),
		"data_dir: " + filepath.Join(v.dir, name),
		fmt.Sprintf("tls: {ca: tls/ca.pem, cert: tls/%[1]s.pem, key: tls/%[1]s.key}", name),
		"peers: [" + strings.Join(v.peers, ", ") + "]",
		"heartbeat: 200ms",
	}, extra...)...)}
	return d
}

func (v *trio) at(name string) int {
	return slices.IndexFunc(v.all, func(d *daemon) bool { return d.name == name })
}

// agent adds a node that knows all coordinators.
func (v *trio) agent(host string, extra ...string) *node {
	v.t.Helper()
	return v.fleet.agent(host, append(extra, fmt.Sprintf("coordinators: [%q, %q, %q]", v.grpcs[0], v.grpcs[1], v.grpcs[2]))...)
}

// leader waits until one coordinator leads and the others know it, and returns it.
func (v *trio) leader() *daemon {
	v.t.Helper()
	var leads string
	v.until(func() error {
		said := v.verb("raft", "members", "-o", "json")
		if said.code != 0 {
			return fmt.Errorf("%s", said.stderr)
		}
		var members []struct {
			Name   string
			Leader bool
		}
		if err := json.Unmarshal([]byte(said.stdout), &members); err != nil {
			return err
		}
		for _, m := range members {
			if m.Leader {
				leads = m.Name
				return nil
			}
		}
		return fmt.Errorf("no leader: %s", said.stdout)
	})
	return v.all[v.at(leads)]
}

// haveLead hands the lead over until the coordinator of that name has it.
func (v *trio) haveLead(name string) {
	v.t.Helper()
	v.until(func() error {
		if v.leader().name != name {
			v.verb("raft", "transfer", "--to", name)
			return fmt.Errorf("%s does not lead", name)
		}
		return nil
	})
}

// The leader is killed twice amid a drain. Nothing that was decided is lost: not the order, not its deadline, not the node.
func TestLeaderKilledMidDrain(t *testing.T) {
	v := newTrio(t)
	a, _, _ := v.agent("host-a", slow), v.agent("host-b"), v.agent("host-c")
	a.fill(20, 4<<20)
	v.up()

	from := time.Now()
	v.verb("decommission", "host-a", "--timeout", "90s", "--reason", "the story's").exits(0)
	ordered := a.seen().Deadline
	v.comes("the order's deadline", ordered, from, 90*time.Second)
	first := v.leader()
	first.kill()
	a.underWay(2)
	v.sameDeadline("after the first failover", a.seen().Deadline, ordered)
	first.start()
	v.leader().kill()
	v.sameDeadline("after the second failover", a.seen().Deadline, ordered)
	a.reconfigure(fmt.Sprintf("coordinators: [%q, %q, %q]", v.grpcs[0], v.grpcs[1], v.grpcs[2]))
	a.kill()
	a.start()
	a.drained()
	v.until(a.is("DECOMMISSIONED"))
	a.allMoved(a.manifest())

	events := v.verb("events", "-o", "json").exits(0).stdout
	if strings.Contains(events, "NodeLost") {
		t.Errorf("a node was lost:\n%s", events)
	}
	if n := strings.Count(events, `"NodeDecommissioned"`); n != 1 {
		t.Errorf("got %d ends of the decommission, want 1:\n%s", n, events)
	}
}

// A snapshot is restored on coordinators with empty disks: it is restored on the first, and the others join that one.
func TestSnapshotIsRestored(t *testing.T) {
	v := newTrio(t)
	a := v.agent("host-a")
	v.start()
	a.kill() // it would only repeat to the new coordinators what they are to know from the snapshot
	v.verb("decommission", "host-a", "--timeout", "30m", "--reason", "the story's").exits(0)
	saved := filepath.Join(v.dir, "fleet.snapshot")
	v.verb("raft", "snapshot", saved).exits(0).tells("saved")
	v.verb("raft", "remove", "c3").exits(1).tells("2 coordinators", "no more failures")
	v.verb("raft", "transfer", "--to", "nobody").exits(3)
	v.verb("raft", "restore", saved, "--config", filepath.Join(v.dir, "c1.yaml")).exits(1).tells("another process has it open")

	whole, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	broken := v.write("broken.snapshot", string(whole[:len(whole)-8]))

	before := a.seen()
	for i, d := range v.all {
		d.kill()
		if i > 0 {
			if err := os.RemoveAll(filepath.Join(v.dir, d.name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	v.verb("raft", "restore", saved, "--config", filepath.Join(v.dir, "c2.yaml")).exits(1).tells("restore on c1")
	v.verb("raft", "restore", broken, "--config", filepath.Join(v.dir, "c1.yaml")).exits(1).tells("cut short")
	v.verb("raft", "restore", filepath.Join(v.tls, "ca.pem"), "--config", filepath.Join(v.dir, "c1.yaml")).exits(1).tells("not a snapshot")
	v.verb("raft", "restore", saved, "--config", filepath.Join(v.dir, "c1.yaml")).exits(0).tells("restored 1 node", "before-restore-")
	for _, d := range v.all {
		d.start()
	}
	v.leader()
	after := a.seen()
	if after.State != before.State {
		t.Fatalf("after the restore host-a is %+v, before it was %+v", after, before)
	}
	v.sameDeadline("after the restore", after.Deadline, before.Deadline)
	v.until(func() error { // the other coordinators may still be too far behind to lead
		if s := v.verb("raft", "transfer"); s.code != 0 || !strings.Contains(s.stdout+s.stderr, "handed over to c") {
			return fmt.Errorf("got exit code %d, %s%s, want the lead handed over", s.code, s.stdout, s.stderr)
		}
		return nil
	})
}

// TestHandOverFigures measures from the order to hand the lead over until the next decision is on the disks of a majority:
// milliseconds on a machine with nothing else to do.
func TestHandOverFigures(t *testing.T) {
	v := newTrio(t, "lease: 1h")
	v.agent("host-a")
	v.start()
	v.nodes[0].kill()
	o := v.office("host-a")
	var took []time.Duration
	for range 5 * *failovers {
		o.decide()
		began := time.Now()
		v.until(func() error { // on a busy machine no follower may take the lead in time, and the leader answers that it leads still
			_, err := api.NewOperatorClient(o.conn).TransferLeadership(t.Context(), &api.TransferLeadershipRequest{})
			return err
		})
		o.decide()
		took = append(took, time.Since(began))
		time.Sleep(300 * time.Millisecond) // until the former leader follows
	}
	t.Logf("in order: %s", took)
	slices.Sort(took)
	t.Logf("%d hand-overs, from the order to the next decision: median %s, worst %s", len(took), took[len(took)/2], took[len(took)-1])
	o.allTold()
}

// office is an operator who decides again and again about one node, each time something else.
type office struct {
	*trio
	conn      *client.Conn
	node      string
	decisions int
}

func (v *trio) office(node string) *office {
	v.t.Helper()
	id, err := certs.LoadDir(v.tls)
	if err != nil {
		v.t.Fatal(err)
	}
	conn := client.New(client.Config{Addresses: v.grpcs, Credentials: credentials.NewTLS(id.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator}))})
	v.t.Cleanup(func() { conn.Close() })
	return &office{trio: v, conn: conn, node: node}
}

// decide moves the node's deadline by a second.
func (o *office) decide() {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), 20*time.Second)
	defer cancel()
	o.decisions++
	_, err := api.NewOperatorClient(o.conn).Decommission(ctx, &api.DecommissionRequest{
		Nodes: []string{o.node}, Timeout: durationpb.New(time.Hour + time.Duration(o.decisions)*time.Second),
	})
	if err != nil {
		o.t.Fatal(err)
	}
}

// allTold checks that every decision but the first is an event of its own.
func (o *office) allTold() {
	o.t.Helper()
	if n := strings.Count(o.verb("events", "-o", "json").exits(0).stdout, "DecommissionChanged"); n != o.decisions-1 {
		o.t.Errorf("got %d changes of %d decisions", n, o.decisions-1)
	}
}

// TestFailoverFigures measures from kill -9 of the leader until the next decision is on the disks of a majority: a second on
// a machine with nothing else to do.
func TestFailoverFigures(t *testing.T) {
	v := newTrio(t, "lease: 1h")
	v.agent("host-a")
	v.start()
	v.nodes[0].kill()
	o := v.office("host-a")
	var took []time.Duration
	for range *failovers {
		o.decide()
		leader := v.leader()
		time.Sleep(time.Second) // until the coordinator that was started last has caught up
		began := time.Now()
		leader.kill()
		o.decide()
		took = append(took, time.Since(began))
		leader.start()
	}
	slices.Sort(took)
	t.Logf("%d failovers, kill -9 to the next decision: median %s, worst %s, all %s", len(took), took[len(took)/2], took[len(took)-1], took)
	o.allTold()
}
