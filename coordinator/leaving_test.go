package coordinator

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// journal keeps what a coordinator logs.
type journal struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

// lines returns the lines with that text since the last call.
func (j *journal) lines(with string) (lines []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.text.Reset()
	for line := range strings.Lines(j.text.String()) {
		if _, said, ok := strings.Cut(strings.TrimSpace(line), "msg="); ok && strings.Contains(said, with) {
			lines = append(lines, said)
		}
	}
	return lines
}

// Each 20 s the log says which nodes leave and what they wait for; it says nothing once none leaves.
func TestWhoLeavesIsLogged(t *testing.T) {
	inTown(t, func(v *town) {
		said := new(journal)
		v.log = slog.New(slog.NewTextHandler(said, nil))
		v.restart()
		a, b := v.agent("a"), v.agent("b")
		a.status.Workloads = []*api.Workload{workload("w", "RUNNING", 2)}
		a.beat()
		b.beat()
		v.order(time.Hour, "a")
		v.order(hosts.Forever, "b")
		b.status.Drain = &api.DrainProgress{Phase: "sending", BlocksTotal: 9, BlocksMoved: 4, BlocksLost: 1, BlocksSkipped: 40}
		for range 25 {
			a.live(1)
			b.beat()
		}
		got := strings.Join(said.lines("leaving"), "\n")
		want := `"nodes are leaving" nodes=2 wait_workload=1 migrating=1
"a node is leaving" node=a sub_state=WAIT_WORKLOAD took=20s waits_for="workload w (2 processes)" left=59m40s
"a node is leaving" node=b sub_state=MIGRATING took=20s blocks=4`
		if got != want {
			v.Errorf("got\n%s\nwant\n%s", got, want)
		}
		a.goodbye("inc-1")
		b.goodbye("inc-1")
		said.lines("")
		time.Sleep(time.Minute)
		if got := said.lines("leaving"); len(got) > 0 {
			v.Errorf("nobody leaves, and the log has %q", got)
		}
	})
}

// When a whole fleet leaves the log names the ten nodes that have been leaving longest.
func TestFewOfManyThatLeaveAreLogged(t *testing.T) {
	said := new(journal)
	w := &leavers{log: slog.New(slog.NewTextHandler(said, nil)), ledger: &ledger{fsm: newReplica(), office: newOffice(0), streams: new(streams)}, leases: newLeases(Default().Lease, nil, t0), apps: newApps()}
	for i := range 10_000 {
		name := fmt.Sprintf("n%05d", i)
		w.ledger.fsm.machine.Nodes[name] = registry.Node{Name: name, State: registry.Decommissioning, Decommission: &registry.Decommission{StartedAt: t0.Add(-time.Duration(i) * time.Second), Order: &registry.Order{At: t0, Timeout: time.Hour}}}
	}
	w.tell(t.Context(), t0)
	lines := said.lines("leaving")
	if len(lines) != 1+leavingNamed || !strings.HasPrefix(lines[0], `"nodes are leaving" nodes=10000 migrating=10000`) || !strings.Contains(lines[1], "node=n09999 ") {
		t.Errorf("got %q", lines)
	}
}
