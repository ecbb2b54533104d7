package coordinator

import (
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/api"
)

// leases is what the leader believes of its nodes from their heartbeats. It is soft: nothing of it is written down, and
// a new process starts by granting every node a full lease.
type leases struct {
	mu      sync.Mutex // guards all below, and every pulse
	nodes   map[string]*pulse
	awaited map[string]bool // in the fleet when this process started, and not heard since
	granted time.Time       // when everybody was last given a lease without a word
}

// pulse is what one node last said.
type pulse struct {
	seen       time.Time // when it last gave a sign of life, or was granted a lease without one
	heard      bool      // a sign of life came since this process started
	registered bool      // it registered since this process started
	status     *api.Status
	said       time.Time // when status came
	room       int64     // what peers are told; follows status in steps of a quarter
	vault      *int64    // of that, in its vault, likewise; nil: it does not tell
	largest    [2]int64  // how large one block may be, there and there, likewise; 0: it does not tell
	unsaid     int       // beats in a row without a notice and without a drain
	sequence   uint64    // of the newest word
	began      uint64    // the first sequence of the process that registered
	report     uint64    // sequence of the newest report of blocks
	suspected  time.Time // since when it has been silent for too long; zero: it is not a suspect
	clock      astray
	fenced     string // the incarnation that this one replaced
}

// newLeases grants everybody in names a lease from now on, without having heard of them.
func newLeases(names []string, now time.Time) *leases {
	l := &leases{}
	l.begin(names, now)
	return l
}

// begin forgets all, as a new process would.
func (l *leases) begin(names []string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes, l.awaited, l.granted = map[string]*pulse{}, map[string]bool{}, now
	for _, name := range names {
		l.pulse(name).seen = now
		l.awaited[name] = true
	}
}

// waiting says whether some node of the log has yet to be heard.
func (l *leases) waiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.awaited) > 0
}

func (l *leases) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.nodes)
}

// regrant gives everybody a new lease: it was we who were not there.
func (l *leases) regrant(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.granted = now
	for _, p := range l.nodes {
		p.seen = now
	}
}

// since is from when on whoever speaks has been heard without a break.
func (l *leases) since() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.granted
}

// register notes a registration.
func (l *leases) register(name string, r *api.RegisterRequest, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pulse(name)
	if !p.registered || p.began != r.Began {
		p.report = 0 // another process may have another clock
	}
	p.registered, p.sequence, p.began = true, r.Sequence, r.Began
	p.note(r.Status, now)
	delete(l.awaited, name)
}

// knows says whether the node has registered since this process started.
func (l *leases) knows(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.nodes[name]
	return ok && p.registered
}

// repeats says whether a registration is older than what the same process was heard to say: there is nothing in it then.
func (l *leases) repeats(name string, r *api.RegisterRequest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.nodes[name]
	return ok && p.registered && r.Began != 0 && r.Began == p.began && r.Sequence <= p.sequence
}

// same says whether it is the process that registered last.
func (l *leases) same(name string, r *api.RegisterRequest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.nodes[name]
	return ok && p.registered && r.Began != 0 && r.Began == p.began
}

// reports says whether a report of blocks is the newest of its node, as far as is known.
func (l *leases) reports(name string, sequence uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.nodes[name]
	if !ok {
		return true
	}
	if sequence != 0 && sequence < p.report {
		return false
	}
	p.report = max(p.report, sequence)
	return true
}

// overtaken says whether a word is older than what the node was heard to say, and takes note of it if not. Links that are
// cut hold words back, and a notice must not be undone by a beat from before it.
func (l *leases) overtaken(name string, sequence uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.nodes[name]
	if !ok {
		return false // nothing was heard yet
	}
	if sequence != 0 && sequence <= p.sequence {
		return true
	}
	p.sequence = max(p.sequence, sequence)
	return false
}

// beat renews a lease. It reports whether the list of peers is another now, and how many beats in a row came without
// notice or drain.
func (l *leases) beat(name string, status *api.Status, now time.Time) (changed bool, unsaid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pulse(name)
	changed = p.note(status, now)
	delete(l.awaited, name)
	return changed, p.unsaid
}

// silent are those who have been silent for longer than after, the gone included.
func (l *leases) silent(now time.Time, after time.Duration) (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, p := range l.nodes {
		if now.Sub(p.seen) > after {
			names = append(names, name)
		}
	}
	return names
}

// noticed are those who said that they are under a notice.
func (l *leases) noticed() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := map[string]bool{}
	for name, p := range l.nodes {
		if watched(p.status) {
			names[name] = true
		}
	}
	return names
}

// watch makes a suspect of a node that has been silent for longer than after, and says whether it has just become one.
func (l *leases) watch(name string, now time.Time, after time.Duration) (is pulse, newly bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.nodes[name]
	if !ok { // it is being registered at this very moment
		p = l.pulse(name)
		p.seen = now
	}
	if p.suspected.IsZero() && now.Sub(p.seen) > after {
		p.suspected, newly = now, true
	}
	return *p, newly
}

// hears clears a suspect that speaks, and takes what it says of its clock: is is nil when that is no news.
func (l *leases) hears(name string, st *api.Status) (trusted bool, is *astray, ahead time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.nodes[name]
	if !ok {
		return false, nil, 0
	}
	trusted = !p.suspected.IsZero()
	p.suspected = time.Time{}
	if st.GetClockAhead() != nil {
		ahead = st.ClockAhead.AsDuration()
		if now := p.clock.now(ahead); now != p.clock {
			p.clock, is = now, &now
		}
	}
	return trusted, is, ahead
}

// cleared ends the suspicion of a node whose silence has been judged, or explained.
func (l *leases) cleared(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, ok := l.nodes[name]; ok {
		p.suspected = time.Time{}
	}
}

// tally counts the suspects and the clocks that are off, and how far the worst of those is.
func (l *leases) tally() (suspects, apart int, worst time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.nodes {
		if !p.suspected.IsZero() {
			suspects++
		}
		if ahead := p.status.GetClockAhead(); ahead != nil {
			worst = max(worst, ahead.AsDuration().Abs())
			if p.clock != onTime {
				apart++
			}
		}
	}
	return suspects, apart, worst
}

// fence keeps the incarnation that a node replaced from replacing it in turn, while it is there.
func (l *leases) fence(name, incarnation string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pulse(name).fenced = incarnation
}

// fences says whether an incarnation was replaced by one that was heard within the lease.
func (l *leases) fences(name, incarnation string, now time.Time, lease time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.nodes[name]
	return ok && incarnation != "" && p.fenced == incarnation && p.heard && now.Sub(p.seen) <= lease
}

// read is a copy of what the node last said. The status in it is never written to.
func (l *leases) read(name string) pulse {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, ok := l.nodes[name]; ok {
		return *p
	}
	return pulse{}
}

func (l *leases) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, name)
}

func (l *leases) pulse(name string) *pulse {
	p, ok := l.nodes[name]
	if !ok {
		p = new(pulse)
		l.nodes[name] = p
	}
	return p
}

func (p *pulse) note(status *api.Status, now time.Time) (changed bool) {
	changed = !p.heard || watched(p.status) != watched(status) || leaves(p.status) != leaves(status) || !slices.Equal(inPlace(p.status), inPlace(status))
	p.seen, p.heard = now, true
	if status == nil {
		return changed
	}
	p.status, p.said = status, now
	if quarter(p.room, status.RoomBytes) {
		p.room, changed = status.RoomBytes, true
	}
	switch vault := status.VaultRoomBytes; {
	case vault == nil:
		p.vault, changed = nil, changed || p.vault != nil
	case p.vault == nil || quarter(*p.vault, *vault):
		p.vault, changed = new(*vault), true
	}
	for i, is := range []int64{status.LargestRoomBytes, status.LargestVaultRoomBytes} {
		if quarter(p.largest[i], is) {
			p.largest[i], changed = is, true
		}
	}
	if status.Notice == nil && (status.Drain == nil || status.Drain.Phase == "cancelled") {
		p.unsaid++
	} else {
		p.unsaid = 0
	}
	return changed
}

// quarter says whether room has changed by a quarter, or to or from none.
func quarter(was, is int64) bool {
	d := is - was
	return d != 0 && (was == 0 || is == 0 || 4*max(d, -d) >= was)
}

// inPlace are the stores whose blocks land in their place at the node.
func inPlace(s *api.Status) (names []string) {
	for _, st := range s.GetStores() {
		if st.GetLand() == "place" {
			names = append(names, st.GetName())
		}
	}
	return names
}

// watched says whether the node is under a notice that its agent takes seriously.
func watched(s *api.Status) bool {
	n := s.GetNotice()
	return n != nil && n.Stance != "ignore"
}

// leaves says whether the node's own word is that it is leaving.
func leaves(s *api.Status) bool { return s.GetNotice().GetStance() == "drain" }
