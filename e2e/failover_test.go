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

// failovers is how many TestFailoverFigures measures: go test ./e2e -run FailoverFigures -failovers 20 -v
var failovers = flag.Int("failovers", 3, "how many failovers are measured")

// trio is a fleet with three coordinators.
type trio struct {
	*fleet
	all   []*daemon
	grpcs []string
}

func newTrio(t *testing.T, extra ...string) *trio {
	t.Helper()
	f := newFleet(t)
	v := &trio{fleet: f}
	names := []string{"c1", "c2", "c3"}
	var peers []string
	for i, name := range names {
		at := f.grpc
		if i > 0 {
			run(t, nil, nil, binary, "tls", "issue", "--dir", f.tls, "--coordinator", name).exits(0)
			at = freeAddress(t)
		}
		v.grpcs = append(v.grpcs, at)
		peers = append(peers, fmt.Sprintf("{name: %s, address: %q}", name, at))
	}
	for i, name := range names {
		file := f.write(name+".yaml", instead([]string{
			"name: " + name,
			fmt.Sprintf("listen: {grpc: %q, http: %q}", v.grpcs[i], freeAddress(t)),
			"data_dir: " + filepath.Join(f.dir, name),
			fmt.Sprintf("tls: {ca: tls/ca.pem, cert: tls/%[1]s.pem, key: tls/%[1]s.key}", name),
			"peers: [" + strings.Join(peers, ", ") + "]",
			"heartbeat: 200ms",
		}, extra...)...)
		v.all = append(v.all, &daemon{t: t, name: name, args: []string{"coordinator", "--config", file}, log: filepath.Join(f.dir, name+".log")})
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

// agent adds a node that knows all coordinators.
func (v *trio) agent(host string, extra ...string) *node {
	v.t.Helper()
	return v.fleet.agent(host, append(extra, fmt.Sprintf("coordinators: [%q, %q, %q]", v.grpcs[0], v.grpcs[1], v.grpcs[2]))...)
}

// leader asks until one leads, and is the one that the others think.
func (v *trio) leader() *daemon {
	v.t.Helper()
	var leads string
	v.until(10*time.Second, func() error {
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
	return v.all[slices.IndexFunc(v.all, func(d *daemon) bool { return d.name == leads })]
}

// The leader is killed amid a drain, twice, and nothing that was decided is lost: not the order, not its deadline, not the
// node.
func TestLeaderKilledMidDrain(t *testing.T) {
	v := newTrio(t)
	a, _, _ := v.agent("host-a", slow), v.agent("host-b"), v.agent("host-c")
	a.fill(20, 4<<20)
	v.up()

	v.verb("decommission", "host-a", "--timeout", "90s", "--reason", "the story's").exits(0)
	ordered := time.Now().Add(90 * time.Second)
	first := v.leader()
	first.kill()
	a.underWay(2)
	v.sameDeadline("after the first failover", a.seen().Deadline, &ordered)
	first.start()
	v.leader().kill()
	v.sameDeadline("after the second failover", a.seen().Deadline, &ordered)
	a.reconfigure(fmt.Sprintf("coordinators: [%q, %q, %q]", v.grpcs[0], v.grpcs[1], v.grpcs[2]))
	a.kill()
	a.start()
	a.drained()
	v.until(10*time.Second, a.is("DECOMMISSIONED"))
	a.allMoved(a.manifest())

	events := v.verb("events", "-o", "json").exits(0).stdout
	if strings.Contains(events, "NodeLost") {
		t.Errorf("a node was lost:\n%s", events)
	}
	if n := strings.Count(events, `"NodeDecommissioned"`); n != 1 {
		t.Errorf("got %d ends of the decommission, want 1:\n%s", n, events)
	}
}

// What is saved comes back on other machines: the first restores, the others join it.
func TestSnapshotIsRestored(t *testing.T) {
	v := newTrio(t)
	a := v.agent("host-a")
	v.start()
	a.kill() // what it would say itself is another story
	v.verb("decommission", "host-a", "--timeout", "30m", "--reason", "the story's").exits(0)
	saved := filepath.Join(v.dir, "fleet.snapshot")
	v.verb("raft", "snapshot", saved).exits(0).tells("saved")
	v.verb("raft", "remove", "c3").exits(1).tells("2 coordinators", "no more failures")
	v.verb("raft", "transfer", "--to", "nobody").exits(3)
	v.verb("raft", "restore", saved, "--config", filepath.Join(v.dir, "c1.yaml")).exits(1).tells("another process has it open")

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
	v.verb("raft", "transfer").exits(0).tells("handed over to c")
}

// TestFailoverFigures measures from kill -9 of the leader until the next decision is on the disks of a majority.
func TestFailoverFigures(t *testing.T) {
	v := newTrio(t, "lease: 1h")
	v.agent("host-a")
	v.start()
	v.nodes[0].kill()
	id, err := certs.LoadDir(v.tls)
	if err != nil {
		t.Fatal(err)
	}
	conn := client.New(client.Config{Addresses: v.grpcs, Credentials: credentials.NewTLS(id.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator}))})
	defer conn.Close()
	decisions := 0
	decide := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		decisions++
		_, err := api.NewOperatorClient(conn).Decommission(ctx, &api.DecommissionRequest{
			Nodes: []string{"host-a"}, Timeout: durationpb.New(time.Hour + time.Duration(decisions)*time.Second),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var took, handed []time.Duration
	for range *failovers {
		decide()
		began := time.Now()
		if _, err := api.NewOperatorClient(conn).TransferLeadership(t.Context(), &api.TransferLeadershipRequest{}); err != nil {
			t.Fatal(err)
		}
		decide()
		handed = append(handed, time.Since(began))
		leader := v.leader()
		time.Sleep(time.Second) // until the one that came back is where the others are
		began = time.Now()
		leader.kill()
		decide()
		took = append(took, time.Since(began))
		leader.start()
	}
	slices.Sort(took)
	slices.Sort(handed)
	t.Logf("%d hand-overs, from the order to the next decision: median %s, worst %s", len(handed), handed[len(handed)/2], handed[len(handed)-1])
	t.Logf("%d failovers, kill -9 to the next decision: median %s, worst %s, all %s", len(took), took[len(took)/2], took[len(took)-1], took)
	if worst := took[len(took)-1]; worst > 10*time.Second {
		t.Errorf("got %s until the next decision: want a second at most on a machine with nothing else to do", worst)
	}
	// Two changes of the same minute move one deadline: all of them are told.
	if n := strings.Count(v.verb("events", "-o", "json").exits(0).stdout, "DecommissionChanged"); n != decisions-1 {
		t.Errorf("got %d changes of %d decisions", n, decisions-1)
	}
}
