package coordinator

import (
	"cmp"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

const (
	// beatsPerSecond is how many heartbeats one coordinator answers with ease on two cores: measured, 8,000 to 15,000 over mutual TLS. A
	// larger fleet is asked to beat less often.
	beatsPerSecond = 8000

	// handshakesPerSecond is how many agents may reconnect in a second: mutual TLS 1.3 costs the coordinator about 1 ms for
	// each, measured, on one of two cores. The window has no lower bound: a fleet of three is back within 2 ms, and 10,000
	// agents take 7 s.
	handshakesPerSecond = 1500

	// reportSpread is the time for each node's full report after a take-over. In 2 ms some thousand blocks are parsed and indexed, on one
	// of two cores.
	reportSpread = 2 * time.Millisecond

	// leaverPace is the longest time between beats of a leaving node, so that its progress can be followed in a fleet that beats more
	// slowly.
	leaverPace = time.Second
)

// suspectAfter is how long a node may be silent before it is a suspect. By default it is half a lease, and at least two beats.
func (c Config) suspectAfter() time.Duration {
	return cmp.Or(c.SuspectAfter, max(c.Lease/2, 2*c.Heartbeat))
}

func (c *Config) checkSuspects(report func(key string, value any, bound, remedy string)) {
	switch after := c.SuspectAfter; {
	case after == 0:
	case after < 2*c.Heartbeat:
		report("suspect_after", after, "must cover two heartbeats of "+config.Show(c.Heartbeat), "raise it to "+config.Show(2*c.Heartbeat)+", or leave it out for half of the lease")
	case after >= c.Lease:
		report("suspect_after", after, "must be less than the lease of "+config.Show(c.Lease)+", after which a node is lost", "leave it out for half of the lease")
	}
}

// pace is the rhythm that agents are asked to keep.
type pace struct {
	interval  time.Duration // from beat to beat
	lease     time.Duration
	reconnect time.Duration // the window over which agents that lost the coordinator spread their return
}

// pace is the pace for a fleet of some size. The interval and the window grow with the fleet, as far as the lease allows: an agent gives up
// waiting for an answer after a sixth of the lease, reconnects within the window, and may miss two beats, and all of that must fit
// into a lease. Nor must it make the agent a suspect.
func (c Config) pace(nodes int) pace {
	p := pace{interval: max(c.Heartbeat, time.Duration(nodes)*time.Second/beatsPerSecond), lease: c.Lease}
	p.interval = min(p.interval, c.Lease/3, c.suspectAfter()/2)
	p.reconnect = min(time.Duration(nodes)*time.Second/handshakesPerSecond, c.Lease-c.Lease/6-2*p.interval, c.suspectAfter()/2)
	return p
}

// paceTo is the pace for one node.
func (s *membership) paceTo(n registry.Node) *api.Pace {
	p := s.cfg.pace(s.ledger.size())
	if n.Leaving() {
		p.interval = min(p.interval, leaverPace)
	}
	told := &api.Pace{Interval: durationpb.New(p.interval), Lease: durationpb.New(p.lease), ReconnectWithin: durationpb.New(p.reconnect)}
	// After a take-over all nodes report their blocks, spread over a window. Until they have, readers are sent to ask the nodes.
	if time.Since(s.leases.tookOver()) < p.lease {
		told.ReportWithin = durationpb.New(min(time.Duration(s.leases.count())*reportSpread, p.lease/3))
	}
	return told
}

// reply adds to r what every answer to a beat of n has.
func (s *membership) reply(n registry.Node, r *api.HeartbeatReply) *api.HeartbeatReply {
	r.Pace, r.Term, r.Now = s.paceTo(n), s.ledger.reign(), timestamppb.Now()
	return r
}
