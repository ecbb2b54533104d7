package coordinator

import (
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/api"
)

// settle bounds how long a new leader waits for the nodes of the log before it gives out lists of peers. It is longer than an agent's
// pause between two attempts (5 s) and the attempt itself.
const settle = 12 * time.Second

// leases is what the leader knows of its nodes from their heartbeats. It is soft: nothing of it is written to a disk, and
// a new leader starts by granting every node a full lease.
type leases struct {
	length time.Duration

	mu      sync.Mutex // guards all below, and every pulse
	nodes   map[string]*pulse
	awaited map[string]bool // nodes of the log at the take-over that have not been heard since
	granted time.Time       // when all nodes were last granted a lease without a heartbeat
	led     time.Time       // see tookOver
}

// pulse is what one node last said.
type pulse struct {
	seen       time.Time // when it was last heard, or was granted a lease without that
	heard      bool      // it was heard since the take-over
	registered bool      // it registered since the take-over
	status     *api.Status
	said       time.Time // when status came
	room       int64     // bytes of room as peers are told; follows status in steps of a quarter
	vault      *int64    // the part of room in its vault, likewise; nil: the node does not say
	largest    [2]int64  // the largest block that fits, and that fits into its vault, likewise; 0: the node does not say
	unsaid     int       // beats in a row without a notice and without a drain
	sequence   uint64    // of its newest message
	began      uint64    // the first sequence of the process that registered
	report     uint64    // sequence of its newest report of blocks
	suspected  time.Time // since when it has been a suspect; zero: it is none
	clock      astray
	fenced     string // the incarnation that the present one replaced
}

// newLeases grants all nodes in names a lease of that length from now on, without having heard them.
func newLeases(length time.Duration, names []string, now time.Time) *leases {
	l := &leases{length: length}
	l.begin(names, now)
	return l
}

// begin forgets all, for a new term as the leader, and grants all nodes in names a lease.
func (l *leases) begin(names []string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes, l.awaited, l.granted, l.led = map[string]*pulse{}, map[string]bool{}, now, now
	for _, name := range names {
		l.pulse(name).seen = now
		l.awaited[name] = true
	}
}

// tookOver is when this coordinator began to lead, or its process began.
func (l *leases) tookOver() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.led
}

// settled reports whether every node that should be there has been heard, or has had the time for that. Before, a list of peers would
// leave out nodes that are well, so agents keep the list that they have.
func (l *leases) settled(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.awaited) == 0 || now.Sub(l.led) >= min(settle, l.length)
}

func (l *leases) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.nodes)
}

// regrant grants all nodes a new lease, because it was this coordinator that was not there to hear them.
func (l *leases) regrant(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.granted = now
	for _, p := range l.nodes {
		p.seen = now
	}
}

// since is the instant from which on this leader has been listening without a break.
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

// expect grants a lease to a node that is to be heard from now on, unless it has one that may have run out. Without one its silence would go
// unnoticed.
func (l *leases) expect(name string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.nodes[name]; !ok {
		l.pulse(name).seen = now
	}
}

// returns renews the lease of a node that has been away and is about to be there again. Its old one ran out long ago: whoever judged it in
// the moment before its registration is noted here would find it LOST.
func (l *leases) returns(name string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, ok := l.nodes[name]; ok {
		p.seen = now
	}
}

// repeats reports whether a registration is not newer than the newest message of the same agent process: then it says nothing new.
func (l *leases) repeats(name string, r *api.RegisterRequest) bool {
	p := l.read(name)
	return p.registers(r) && r.Sequence <= p.sequence
}

// reports reports whether a report of blocks is the newest of its node, and notes it.
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

// overtaken reports whether a message is older than the node's newest one, and notes its sequence if not. A link that was cut may deliver
// old messages late, and a beat from before a notice must not undo the notice.
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

// beat renews a lease. It returns whether the list of peers changes by this status, and how many beats in a row came without notice
// or drain.
func (l *leases) beat(name string, status *api.Status, now time.Time) (changed bool, unsaid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pulse(name)
	changed = p.note(status, now)
	delete(l.awaited, name)
	return changed, p.unsaid
}

// silent are the nodes that have been silent for longer than after, also those that are gone.
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

// noticed are the nodes whose status has a notice that their agents heed.
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

// watch makes a node that has been silent for longer than after a suspect, and returns its pulse and whether it has just become one.
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

// hears clears the suspicion of a node that was heard (trusted: it was a suspect), and notes the state of its clock; is is nil if that has
// not changed.
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

// cleared ends the suspicion of a node that is LOST, or whose silence has another reason.
func (l *leases) cleared(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, ok := l.nodes[name]; ok {
		p.suspected = time.Time{}
	}
}

// tally counts the suspects and the clocks that are off, and says how far off the worst clock is.
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

// fence keeps a replaced incarnation from replacing its successor in turn, for as long as the successor is heard.
func (l *leases) fence(name, incarnation string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pulse(name).fenced = incarnation
}

// fences reports whether an incarnation was replaced by one that was heard within the lease.
func (l *leases) fences(name, incarnation string, now time.Time) bool {
	p := l.read(name)
	return incarnation != "" && p.fenced == incarnation && p.heard && now.Sub(p.seen) <= l.length
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

// present reports whether a node, in whatever state, was heard within the last lease.
func (l *leases) present(name string) bool {
	p := l.read(name)
	return p.heard && time.Since(p.seen) <= l.length
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

// registers reports whether a registration is of the agent process that registered last.
func (p pulse) registers(r *api.RegisterRequest) bool {
	return p.registered && r.Began != 0 && r.Began == p.began
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

// quarter reports whether room has changed by a quarter or more, or to or from none.
func quarter(was, is int64) bool {
	d := is - was
	return d != 0 && (was == 0 || is == 0 || 4*max(d, -d) >= was)
}

// inPlace are the stores whose blocks land in the store itself at the node, not in its vault.
func inPlace(s *api.Status) (names []string) {
	for _, st := range s.GetStores() {
		if st.GetLand() == "place" {
			names = append(names, st.GetName())
		}
	}
	return names
}

// watched reports whether the node is under a notice that its agent heeds: its stance is not ignore.
func watched(s *api.Status) bool {
	n := s.GetNotice()
	return n != nil && n.Stance != "ignore"
}

// leaves reports whether the node itself says that it is leaving.
func leaves(s *api.Status) bool { return s.GetNotice().GetStance() == "drain" }
