package coordinator

import (
	"errors"
	"fmt"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Modes of a machine, as Mesos has them. Nothing but an operator's word takes a machine from one to another.
const (
	modeUp       = "UP"
	modeDraining = "DRAINING" // it has an appointment
	modeDown     = "DOWN"     // it is being worked on: no node of it is let in
)

// schedule is which machines are to be worked on, and when: Mesos's maintenance schedule, decided by the rules of its master
// (src/master/maintenance.cpp). It is kept in the log, and never changed once made.
type schedule struct {
	Windows []outage `json:"windows"`

	once sync.Once
	by   map[string][]appointment // by the host's name, or the address where none is given
}

// outage is a window: when some machines are not to be counted on.
type outage struct {
	Machines []scheduled    `json:"machines"`
	Start    int64          `json:"start"`              // Unix nanoseconds; before 1970 is as good as any past
	Duration *time.Duration `json:"duration,omitempty"` // nil: nobody says
	Said     time.Time      `json:"said,omitzero"`      // when it was scheduled
}

// scheduled is a machine that stands in a schedule. It need not be known here.
type scheduled struct {
	Hostname string `json:"hostname,omitempty"`
	IP       string `json:"ip,omitempty"`
	Down     bool   `json:"down,omitempty"`
}

// appointment is what a schedule has for one machine.
type appointment struct {
	*scheduled
	of *outage
}

// Reasons why a schedule, or a word about machines in it, is refused. Nothing changed then.
var (
	errSchedule     = errors.New("the schedule is refused")
	errNotScheduled = errors.New("it is not in the maintenance schedule")
	errNotDraining  = errors.New("it is DOWN already")
	errNotDown      = errors.New("it is not DOWN")
	errDown         = errors.New("its machine is DOWN for maintenance")
)

// key is the one spelling of a machine.
func (s scheduled) key() [2]string { return [2]string{hosts.Key(s.Hostname), hosts.Key(s.IP)} }

func (s scheduled) String() string {
	switch {
	case s.IP == "":
		return s.Hostname
	case s.Hostname == "":
		return s.IP
	}
	return s.Hostname + " (" + s.IP + ")"
}

// is says whether a node runs on the machine. As in Mesos both must match where both are given; an address that the node does
// not tell, because it is dialled by a name, cannot contradict.
func (s scheduled) is(keys []string) bool {
	if s.Hostname != "" && !slices.Contains(keys, hosts.Key(s.Hostname)) {
		return false
	}
	if s.IP == "" || slices.Contains(keys, hosts.Key(s.IP)) {
		return true
	}
	return s.Hostname != "" && !slices.ContainsFunc(keys, isIP)
}

// mode is that of the machine.
func (a appointment) mode() string {
	switch {
	case a.scheduled == nil:
		return modeUp
	case a.Down:
		return modeDown
	}
	return modeDraining
}

func (w outage) start() time.Time { return time.Unix(0, w.Start) }

// over says whether the window is behind an instant.
func (w outage) over(at time.Time) bool {
	return w.Duration != nil && !at.Before(w.start().Add(*w.Duration))
}

// within says whether the window begins so soon after an instant, or has begun and is not over.
func (w outage) within(soon time.Duration, at time.Time) bool {
	return !at.Before(w.start().Add(-soon)) && !w.over(at)
}

// of is the appointment of a node's machine at an instant: of several the one that is DOWN, else the earliest that is not over.
func (s *schedule) of(name, peerAddress string, at time.Time) (a appointment) {
	if s == nil || len(s.Windows) == 0 {
		return a
	}
	s.once.Do(s.sort)
	keys := hosts.Keys(name, peerAddress)
	for _, key := range keys {
		for _, b := range s.by[key] {
			if b.is(keys) && (a.scheduled == nil || b.before(a, at)) {
				a = b
			}
		}
	}
	return a
}

// past says whether the appointment is over, and the machine was not taken down for it: it holds its node back no longer.
func (a appointment) past(at time.Time) bool { return a.mode() == modeDraining && a.of.over(at) }

func (a appointment) before(b appointment, at time.Time) bool {
	if a.Down != b.Down {
		return a.Down
	}
	if past := a.of.over(at); past != b.of.over(at) {
		return !past
	}
	return a.of.Start < b.of.Start
}

func (s *schedule) sort() {
	s.by = map[string][]appointment{}
	for i := range s.Windows {
		w := &s.Windows[i]
		for j := range w.Machines {
			m := &w.Machines[j]
			key := m.key()[0]
			if m.Hostname == "" {
				key = m.key()[1]
			}
			s.by[key] = append(s.by[key], appointment{m, w})
		}
	}
}

// machines is how many stand in it.
func (s *schedule) machines() (n int) {
	if s != nil {
		for _, w := range s.Windows {
			n += len(w.Machines)
		}
	}
	return n
}

// scheduleAfter is what c makes of the schedule, and the events that tell it.
func (m *machine) scheduleAfter(c command) (*schedule, []event, error) {
	s := step{cmd: c, last: m.LastEvent}
	switch c.Do {
	case doSchedule:
		next, err := m.Schedule.with(c)
		if err != nil || next.equal(m.Schedule) {
			return m.Schedule, nil, err
		}
		s.tell(evMaintenance, "windows", strconv.Itoa(len(next.Windows)), "machines", strconv.Itoa(next.machines()), "reason", c.Reason)
		return next, s.events, nil
	case doMachinesDown, doMachinesUp:
		next, err := m.Schedule.moved(c.Machines, c.Do == doMachinesDown)
		if err != nil {
			return m.Schedule, nil, err
		}
		what := evMachineUp
		if c.Do == doMachinesDown {
			what = evMachineDown
		}
		for _, named := range c.Machines {
			s.tell(what, "hostname", named.Hostname, "ip", named.IP, "reason", c.Reason)
		}
		return next, s.events, nil
	}
	return m.Schedule, nil, nil
}

// with is the schedule that takes the place of this one, or that this one is with more windows. Machines keep their modes, and
// windows that are said again when they were first said.
func (s *schedule) with(c command) (*schedule, error) {
	next := &schedule{}
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
			down[m.key()] = m.String()
		}
	}
	seen := map[[2]string]bool{}
	for i, w := range next.Windows {
		next.Windows[i].Machines = slices.Clone(w.Machines)
		for j, m := range w.Machines {
			if seen[m.key()] {
				return nil, fmt.Errorf("%w: machine %s stands in it twice", errSchedule, m)
			}
			seen[m.key()] = true
			next.Windows[i].Machines[j].Down = down[m.key()] != ""
		}
	}
	for key, name := range down {
		if !seen[key] {
			return nil, fmt.Errorf("%w: machine %s is DOWN and not in it: lifeboat maintenance up comes first", errSchedule, name)
		}
	}
	return next, nil
}

// without are the windows but for machines that others name, whose appointments are over.
func (s *schedule) without(others []outage, at time.Time) (windows []outage) {
	named := map[[2]string]bool{}
	for m := range (&schedule{Windows: others}).all() {
		named[m.key()] = true
	}
	for _, w := range s.Windows {
		w.Machines = slices.DeleteFunc(slices.Clone(w.Machines), func(m scheduled) bool {
			return named[m.key()] && appointment{&m, &w}.past(at)
		})
		if len(w.Machines) > 0 {
			windows = append(windows, w)
		}
	}
	return windows
}

// all yields the machines.
func (s *schedule) all() func(func(scheduled) bool) {
	return func(yield func(scheduled) bool) {
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

// moved is the schedule with machines taken down, or up again, which takes them out of it. All of them are, or none.
func (s *schedule) moved(named []scheduled, down bool) (*schedule, error) {
	want := map[[2]string]bool{}
	for _, m := range named {
		want[m.key()] = true
	}
	next := &schedule{}
	if s != nil {
		for _, w := range s.Windows {
			kept := make([]scheduled, 0, len(w.Machines))
			for _, m := range w.Machines {
				if !want[m.key()] {
					kept = append(kept, m)
					continue
				}
				delete(want, m.key())
				switch {
				case down && m.Down:
					return nil, fmt.Errorf("machine %s: %w", m, errNotDraining)
				case !down && !m.Down:
					return nil, fmt.Errorf("machine %s: %w", m, errNotDown)
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
		if want[m.key()] {
			return nil, fmt.Errorf("machine %s: %w", m, errNotScheduled)
		}
	}
	return next, nil
}

func (s *schedule) equal(o *schedule) bool {
	if s.machines() == 0 || o.machines() == 0 {
		return s.machines() == o.machines()
	}
	return slices.EqualFunc(s.Windows, o.Windows, func(a, b outage) bool {
		same := (a.Duration == nil) == (b.Duration == nil) && (a.Duration == nil || *a.Duration == *b.Duration)
		return same && a.Start == b.Start && slices.Equal(a.Machines, b.Machines)
	})
}
