package e2e_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/preemption/azurefake"
	"github.com/lifeboat/lifeboat/preemption/ec2fake"
	"github.com/lifeboat/lifeboat/preemption/gcefake"
)

// listensTo is the line of an agent's file that names a pretend metadata service.
func listensTo(provider string, metadata *httptest.Server) string {
	return fmt.Sprintf("cloud: {provider: %s, endpoint: %q, poll: 100ms}", provider, metadata.URL)
}

// Google gives 30 seconds and says no deadline; the node is empty long before.
func TestGooglePreempts(t *testing.T) {
	f := newFleet(t)
	cloud := gcefake.New(gcefake.Instance{ID: "42", MachineType: "n2-standard-4", Zone: "us-central1-a", Spot: true})
	metadata := httptest.NewServer(cloud)
	defer metadata.Close()
	defer metadata.CloseClientConnections() // it may have hanging requests
	a, b := f.agent("host-a", "node: {name: host-a}", listensTo("gce", metadata)), f.agent("host-b")
	a.fill(5, 200<<10)
	f.up()
	f.verb("node", "host-a").exits(0).tells("us-central1-a", "n2-standard-4-spot")

	cloud.Maintenance("MIGRATE_ON_HOST_MAINTENANCE") // nothing is done about that
	preempted := time.Now()
	cloud.Preempt()
	m := a.gone("preempt", "gce")
	f.comes("30 s after it was seen", m.Incident.Deadline, preempted, 30*time.Second)
	b.onSocket().alone().serves(t, a.blocks)
}

// Azure tells every machine of a scale set the events of all. The node leaves for its own event, approves the event when
// the node is empty, if no other machine is named in it, and comes back when the event is called off.
func TestAzureSchedules(t *testing.T) {
	f := newFleet(t)
	cloud := azurefake.New(azurefake.Machine{Name: "pool_24", ID: "02aab8a4", Size: "Standard_E8ds_v5", Location: "westeurope", Zone: "2", Priority: "Spot"})
	metadata := httptest.NewServer(cloud)
	defer metadata.Close()
	a, b := f.agent("host-a", listensTo("azure", metadata)), f.agent("host-b")
	a.fill(5, 200<<10)
	f.up()

	cloud.Schedule(azurefake.Event{Type: "Preempt", Resources: []string{"pool_23"}, NotBefore: time.Now().Add(30 * time.Second)})
	cloud.Schedule(azurefake.Event{Type: "Freeze", NotBefore: time.Now().Add(15 * time.Minute)})
	shared := cloud.Schedule(azurefake.Event{Type: "Terminate", Resources: []string{"pool_24", "pool_25"}, NotBefore: time.Now().Add(10 * time.Minute)})
	a.gone("terminate", "azure")
	if approved := cloud.Approved(); len(approved) > 0 {
		t.Errorf("approved %v: it names another machine too", approved)
	}
	cloud.Remove(shared)
	f.until(a.staying)

	alone := cloud.Schedule(azurefake.Event{Type: "Terminate", NotBefore: time.Now().Add(10 * time.Minute)})
	a.gone("terminate", "azure")
	f.until(func() error {
		if got := cloud.Approved(); !slices.Equal(got, []string{alone}) {
			return fmt.Errorf("approved %v, want %s", got, alone)
		}
		return nil
	})
	b.onSocket().alone().serves(t, a.blocks)
}

// A rehearsal goes the whole way and then undoes itself. No rehearsal begins while a cloud has given a real notice.
func TestRehearsal(t *testing.T) {
	f := newFleet(t)
	cloud := ec2fake.New(ec2fake.Instance{ID: "i-1"})
	metadata := httptest.NewServer(cloud)
	defer metadata.Close()
	a, b := f.agent("host-a", listensTo("ec2", metadata)), f.agent("host-b")
	a.fill(5, 200<<10)
	f.up()

	a.verb("simulate", "retirement", "--in", "72h", "--dry-run").exits(0).tells("dry run", "pre-copy now", "5 blocks")
	a.verb("simulate", "freeze", "--dry-run").exits(0).tells("ignore")
	a.verb("simulate", "explode").exits(2).tells("explode", "terminate")
	a.verb("simulate").exits(2)
	if s := a.status(); s.Notice != nil {
		t.Errorf("a dry run left %+v", s.Notice)
	}

	a.verb("simulate", "preempt", "--in", "40s", "--reason", "game day").exits(0).tells("inc-", "lifeboat cancel")
	a.gone("preempt", "simulate")
	a.verb("status").exits(0).tells("rehearsal: game day", "spot/instance-action")
	f.until(a.staying) // the rehearsal's deadline is over, and the machine is still there

	a.verb("simulate", "terminate").exits(0)
	f.until(a.is("DECOMMISSIONED"))
	a.verb("cancel").exits(0)
	f.until(a.staying)

	cloud.Interrupt("terminate", time.Now().Add(2*time.Minute))
	a.gone("terminate", "ec2")
	a.verb("simulate", "terminate").exits(1).tells("ec2 says terminate", "no time to rehearse")
	b.onSocket().alone().serves(t, a.blocks)
}

// The doctor names what keeps a node from hearing of its end, and what to do.
func TestDoctor(t *testing.T) {
	f := newFleet(t)
	cloud := ec2fake.New(ec2fake.Instance{ID: "i-1", Type: "r5.4xlarge", Zone: "us-east-1a", LifeCycle: "spot"})
	metadata := httptest.NewServer(cloud)
	defer metadata.Close()
	a, b := f.agent("host-a", listensTo("ec2", metadata)), f.agent("host-b")
	f.up()

	config := "--config=" + a.args[len(a.args)-1]
	a.verb("doctor", config).exits(0).tells("ec2", "r5.4xlarge", "instance-action", "1 peer")
	cloud.Fail(503)
	b.kill()
	f.until(func() error {
		if s := a.verb("doctor", config); s.code != 1 || !strings.Contains(s.stdout, "a notice would not be heard") {
			return fmt.Errorf("doctor finds nothing bad about the sources: %s", s.stdout)
		}
		return nil
	})
	a.verb("doctor", config).exits(1).tells("503", "asked too often")
	a.verb("doctor", config, "-o", "json").exits(1).tells(`"state": "bad"`)
	a.kill()
	a.verb("doctor", config).exits(1).tells("none answers on")
}
