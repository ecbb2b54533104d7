package coordinator

import (
	"cmp"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

const (
	// beatsPerSecond is what one coordinator answers at ease on two cores: measured, 8,000 to 15,000 over mutual TLS. A
	// larger fleet is asked to beat less often.
	beatsPerSecond = 8000

	// handshakesPerSecond is how many agents may come back in a second: mutual TLS 1.3 costs the coordinator about 1 ms for
	// each, measured, on one of two cores. There is no least window: a fleet of three is back within 2 ms, and 10,000
	// agents take 7 s.
	handshakesPerSecond = 1500

	// reportSpread is the time that a full report has to itself after a take-over: some thousand blocks are parsed and
	// indexed in that, on one of two cores.
	reportSpread = 2 * time.Millisecond

	// leaverPace is how often a node that leaves tells how far it is, where the fleet beats more slowly.
	leaverPace = time.Second
)

// suspectAfter is how long a node may be silent before it is a suspect. Two beats may always be missed.
func (c Config) suspectAfter() time.Duration {
	return cmp.Or(c.SuspectAfter, max(c.Lease/2, 2*c.Heartbeat))
}

func (c *Config) checkSuspects(report func(key string, value any, bound, remedy string)) {
	switch after := c.SuspectAfter; {
	case after == 0:
	case after < 2*c.Heartbeat:
		report("suspect_after", after, fmt.Sprintf("must cover two heartbeats of %s", c.Heartbeat), fmt.Sprintf("raise it to %s, or leave it out for half of the lease", 2*c.Heartbeat))
	case after >= c.Lease:
		report("suspect_after", after, fmt.Sprintf("must be less than the lease of %s, after which a node is lost", c.Lease), "leave it out for half of the lease")
	}
}

// pace is what a fleet of some size is asked to keep to.
type pace struct {
	interval  time.Duration // from beat to beat
	lease     time.Duration
	reconnect time.Duration // within which those come back that lost sight of the coordinator
}

// pace grows with the fleet, as far as the lease allows: an agent gives up an answer after a sixth of the lease, comes back
// within the window, and may miss two beats, all within a lease. And it must not become a suspect for it.
func (c Config) pace(nodes int) pace {
	p := pace{interval: max(c.Heartbeat, time.Duration(nodes)*time.Second/beatsPerSecond), lease: c.Lease}
	p.interval = min(p.interval, c.Lease/3, c.suspectAfter()/2)
	p.reconnect = min(time.Duration(nodes)*time.Second/handshakesPerSecond, c.Lease-c.Lease/6-2*p.interval, c.suspectAfter()/2)
	return p
}

func (f *fleet) pace() pace {
	var nodes int
	f.ledger.view(func(m *registry.Registry) { nodes = len(m.Nodes) })
	return f.cfg.pace(nodes)
}

// paceTo is what one node is told.
func (f *fleet) paceTo(n registry.Node) *api.Pace {
	p := f.pace()
	if n.Leaving() {
		p.interval = min(p.interval, leaverPace)
	}
	told := &api.Pace{Interval: durationpb.New(p.interval), Lease: durationpb.New(p.lease), ReconnectWithin: durationpb.New(p.reconnect)}
	// One that has just taken over hears of everybody's blocks. Until it has, readers are sent to ask the nodes.
	if time.Since(*f.tookOver.Load()) < p.lease {
		told.ReportWithin = durationpb.New(min(time.Duration(f.leases.count())*reportSpread, p.lease/3))
	}
	return told
}

// reply is what every answer to a beat of n says.
func (f *fleet) reply(n registry.Node, r *api.HeartbeatReply) *api.HeartbeatReply {
	r.Pace, r.Term, r.Now = f.paceTo(n), f.reign(), timestamppb.Now()
	return r
}

// reign is the term in which this coordinator took the lead: raft's own may be a later one, that another leads in.
func (f *fleet) reign() uint64 {
	if f.ledger.alone() {
		return f.ledger.raft.CurrentTerm()
	}
	o := f.ledger.office
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.number
}
