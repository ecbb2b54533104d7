package registry

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/hosts"
)

// Modes of a machine, as Mesos has them. Only an operator's call takes a machine from one to another.
const (
	ModeUp       = "UP"
	ModeDraining = "DRAINING" // it stands in the schedule
	ModeDown     = "DOWN"     // it is being worked on: no node on it may register
)

// Schedule says which machines are to be worked on, and when. It is Mesos's maintenance schedule, with the rules of Mesos's master
// (src/master/maintenance.cpp). It is kept in the log, and never changed once made.
type Schedule struct {
	Windows []Outage `json:"windows"`

	once sync.Once
	by   map[string][]Appointment // by host name, or by address for a machine without one
}

// Outage is a window of the schedule: a span of time in which some machines are not to be counted on.
type Outage struct {
	Machines []Scheduled    `json:"machines"`
	Start    int64          `json:"start"`              // Unix nanoseconds; negative ones, before 1970, are in the past like others
	Duration *time.Duration `json:"duration,omitempty"` // nil: not known, and the window is never over
	Said     time.Time      `json:"said,omitzero"`      // when it was scheduled
}

// Scheduled is a machine in a schedule. It need not run a node that is known.
type Scheduled struct {
	Hostname string `json:"hostname,omitempty"`
	IP       string `json:"ip,omitempty"`
	Down     bool   `json:"down,omitempty"`
}

// Appointment is what a schedule has for one machine.
type Appointment struct {
	*Scheduled
	Of *Outage
}

// Reasons why a schedule, or a change of its machines' modes, is refused. A refused command changes nothing.
var (
	ErrSchedule     = errors.New("the schedule is refused")
	ErrNotScheduled = errors.New("it is not in the maintenance schedule")
	ErrNotDraining  = errors.New("it is DOWN already")
	ErrNotDown      = errors.New("it is not DOWN: to take it out of the schedule, schedule the others without it")
	ErrDown         = errors.New("its machine is DOWN for maintenance")
)

// Key is the canonical spelling of a machine.
func (s Scheduled) Key() [2]string { return [2]string{hosts.Key(s.Hostname), hosts.Key(s.IP)} }

func (s Scheduled) String() string {
	switch {
	case s.IP == "":
		return s.Hostname
	case s.Hostname == "":
		return s.IP
	}
	return s.Hostname + " (" + s.IP + ")"
}

// is reports whether a node with these keys runs on the machine. As in Mesos, host name and address must both match if both are given.
// A node whose peer address is a host name does not tell its IP address: then the name alone decides.
func (s Scheduled) is(keys []string) bool {
	if s.Hostname != "" && !slices.Contains(keys, hosts.Key(s.Hostname)) {
		return false
	}
	if s.IP == "" || slices.Contains(keys, hosts.Key(s.IP)) {
		return true
	}
	return s.Hostname != "" && !slices.ContainsFunc(keys, isIP)
}

// Mode is the machine's mode.
func (a Appointment) Mode() string {
	switch {
	case a.Scheduled == nil:
		return ModeUp
	case a.Down:
		return ModeDown
	}
	return ModeDraining
}

// From is the instant at which it starts.
func (w Outage) From() time.Time { return time.Unix(0, w.Start) }

// Over reports whether the window has ended by an instant.
func (w Outage) Over(at time.Time) bool {
	return w.Duration != nil && !at.Before(w.From().Add(*w.Duration))
}

// Within reports whether the window begins at most soon after an instant, or has begun and is not over.
func (w Outage) Within(soon time.Duration, at time.Time) bool {
	return !at.Before(w.From().Add(-soon)) && !w.Over(at)
}

// Of is the appointment of a node's machine at an instant. Of several, one that is DOWN comes first, then the earliest that is not over.
func (s *Schedule) Of(name, peerAddress string, at time.Time) (a Appointment) {
	if s == nil || len(s.Windows) == 0 {
		return a
	}
	s.once.Do(s.sort)
	keys := hosts.Keys(name, peerAddress)
	for _, key := range keys {
		for _, b := range s.by[key] {
			if b.is(keys) && (a.Scheduled == nil || b.before(a, at)) {
				a = b
			}
		}
	}
	return a
}

// Past reports whether the appointment is over and its machine is not DOWN: it holds the node back no longer.
func (a Appointment) Past(at time.Time) bool { return a.Mode() == ModeDraining && a.Of.Over(at) }

func (a Appointment) before(b Appointment, at time.Time) bool {
	if a.Down != b.Down {
		return a.Down
	}
	if past := a.Of.Over(at); past != b.Of.Over(at) {
		return !past
	}
	return a.Of.Start < b.Of.Start
}

func (s *Schedule) sort() {
	s.by = map[string][]Appointment{}
	for i := range s.Windows {
		w := &s.Windows[i]
		for j := range w.Machines {
			m := &w.Machines[j]
			key := m.Key()[0]
			if m.Hostname == "" {
				key = m.Key()[1]
			}
			s.by[key] = append(s.by[key], Appointment{m, w})
		}
	}
}

// machines is how many machines the schedule has.
func (s *Schedule) machines() (n int) {
	if s != nil {
		for _, w := range s.Windows {
			n += len(w.Machines)
		}
	}
	return n
}

// scheduleAfter is the schedule after c, and the events that tell of the change.
func (m *Registry) scheduleAfter(c Command) (*Schedule, []Event, error) {
	s := step{cmd: c, last: m.LastEvent}
	switch c.Do {
	case DoSchedule:
		next, err := m.Schedule.with(c)
		if err != nil || next.equal(m.Schedule) {
			return m.Schedule, nil, err
		}
		s.tell(EventMaintenance, "windows", strconv.Itoa(len(next.Windows)), "machines", strconv.Itoa(next.machines()), "reason", c.Reason)
		return next, s.events, nil
	case DoMachinesDown, DoMachinesUp:
		next, err := m.Schedule.moved(c.Machines, c.Do == DoMachinesDown)
		if err != nil {
			return m.Schedule, nil, err
		}
		what := EventMachineUp
		if c.Do == DoMachinesDown {
			what = EventMachineDown
		}
		for _, named := range c.Machines {
			s.tell(what, "hostname", named.Hostname, "ip", named.IP, "reason", c.Reason)
		}
		return next, s.events, nil
	}
	return m.Schedule, nil, nil
}

// with is the schedule after c: c's windows replace those of s, or are added to them. Machines keep their modes, and a window with the
// same start as one in s keeps its Said.
func (s *Schedule) with(c Command) (*Schedule, error) {
	next := &Schedule{}
	said := map[int64]time.Time{}
	if s != nil {
		for _, w := range s.Windows {
			said[w.Start] = w.Said
		}
		switch {
		case c.Renews:
			next.Windows = s.without(c.Windows, c.At)
		case c.Add:
			next.Windows = slices.Clone(s.Windows)
		}
	}
	for _, w := range c.Windows {
		var before bool
		if w.Said, before = said[w.Start]; !before {
			w.Said = c.At
		}
		next.Windows = append(next.Windows, w)
	}
	down := map[[2]string]string{}
	for m := range s.all() {
		if m.Down {
			down[m.Key()] = m.String()
		}
	}
	seen := map[[2]string]bool{}
	for i, w := range next.Windows {
		next.Windows[i].Machines = slices.Clone(w.Machines)
		for j, m := range w.Machines {
			if seen[m.Key()] {
				return nil, fmt.Errorf("%w: machine %s stands in it twice", ErrSchedule, m)
			}
			seen[m.Key()] = true
			next.Windows[i].Machines[j].Down = down[m.Key()] != ""
		}
	}
	for key, name := range down {
		if !seen[key] {
			return nil, fmt.Errorf("%w: machine %s is DOWN and not in it: lifeboat maintenance up comes first", ErrSchedule, name)
		}
	}
	return next, nil
}

// without are the windows of s, less the machines that others name again and whose appointments in s are past.
func (s *Schedule) without(others []Outage, at time.Time) (windows []Outage) {
	named := map[[2]string]bool{}
	for m := range (&Schedule{Windows: others}).all() {
		named[m.Key()] = true
	}
	for _, w := range s.Windows {
		w.Machines = slices.DeleteFunc(slices.Clone(w.Machines), func(m Scheduled) bool {
			return named[m.Key()] && Appointment{&m, &w}.Past(at)
		})
		if len(w.Machines) > 0 {
			windows = append(windows, w)
		}
	}
	return windows
}

// all yields the machines.
func (s *Schedule) all() func(func(Scheduled) bool) {
	return func(yield func(Scheduled) bool) {
		if s == nil {
			return
		}
		for _, w := range s.Windows {
			for _, m := range w.Machines {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// moved is the schedule with the named machines DOWN, or UP again, which takes them out of it. It fails if that is not possible for one
// of them.
func (s *Schedule) moved(named []Scheduled, down bool) (*Schedule, error) {
	want := map[[2]string]bool{}
	for _, m := range named {
		want[m.Key()] = true
	}
	next := &Schedule{}
	if s != nil {
		for _, w := range s.Windows {
			kept := make([]Scheduled, 0, len(w.Machines))
			for _, m := range w.Machines {
				if !want[m.Key()] {
					kept = append(kept, m)
					continue
				}
				delete(want, m.Key())
				switch {
				case down && m.Down:
					return nil, fmt.Errorf("machine %s: %w", m, ErrNotDraining)
				case !down && !m.Down:
					return nil, fmt.Errorf("machine %s: %w", m, ErrNotDown)
				case down:
					m.Down = true
					kept = append(kept, m)
				}
			}
			if w.Machines = kept; len(kept) > 0 {
				next.Windows = append(next.Windows, w)
			}
		}
	}
	for _, m := range named {
		if want[m.Key()] {
			return nil, fmt.Errorf("machine %s: %w", m, ErrNotScheduled)
		}
	}
	return next, nil
}

func (s *Schedule) equal(o *Schedule) bool {
	if s.machines() == 0 || o.machines() == 0 {
		return s.machines() == o.machines()
	}
	return slices.EqualFunc(s.Windows, o.Windows, func(a, b Outage) bool {
		same := (a.Duration == nil) == (b.Duration == nil) && (a.Duration == nil || *a.Duration == *b.Duration)
		return same && a.Start == b.Start && slices.Equal(a.Machines, b.Machines)
	})
}

// Kept reports whether an operator recommissioned n when it was time to leave for appointment a. An appointment that was scheduled after
// that is another one, however near.
func (n Node) Kept(a Appointment, lead time.Duration) bool {
	return !n.Recalled.Before(a.Of.From().Add(-lead)) && !n.Recalled.Before(a.Of.Said)
}

// Any reports whether any window begins at most soon after now, or has begun and is not over.
func (s *Schedule) Any(soon time.Duration, now time.Time) bool {
	return s != nil && slices.ContainsFunc(s.Windows, func(w Outage) bool { return w.Within(soon, now) })
}

// Answer is a node's answer to its machine's appointment, in the words of Mesos's inverse offers. No matter how the decommission ended,
// the manifest says whether all blocks are elsewhere; but a manifest from before the node last came back says nothing of the blocks
// that it has taken in since.
func Answer(n Node) string {
	switch m := n.Manifest; {
	case n.State != Decommissioned:
		return "UNKNOWN"
	case m != nil && m.Lost == 0 && n.ReturnedAt.Before(m.At):
		return "ACCEPT"
	}
	return "DECLINE"
}

func isIP(host string) bool { _, err := netip.ParseAddr(host); return err == nil }

// Maintains reports whether a node's machine has an appointment that is not past, is DOWN, or is under maintenance by the host files.
func (m *Registry) Maintains(n Node, now time.Time) bool {
	a := m.Schedule.Of(n.Name, n.PeerAddress, now)
	return a.Mode() != ModeUp && !a.Past(now) || m.Hosts.Lists.Maintained(n.Name, n.PeerAddress, now)
}
