// Package registry is what the coordinators of a fleet agree on: the nodes and their states, orders and notices with their deadlines, join
// tokens and revoked certificates, the host files' lists, the maintenance schedule, apps that are over, and the audit of operators'
// calls. It is the state machine behind raft: commands go in, events come out, and every replica that applies the same log is the same.
//
// It reads no clock, draws no random number, and knows of no heartbeat, no file and no network: the leader writes into each command what the
// registry needs to know of these. A command that is refused, or that would change nothing, leaves the registry as it was.
//
// The files, in an order to read them: node, times, accounts; command, registry; steps, gone, executors, fates; hosts, maintenance, maintenance_steps;
// door; lives; marks; audit.
package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// KeptEvents is how many events a follower can catch up on: hours of a fleet in trouble, or months of a quiet one. They take at
	// most some 4 MB of a snapshot and 10 MB of memory.
	KeptEvents = 16384

	// ForgetAfter is how long a node that is gone stays on the list, unless the settings say otherwise. Fleets of spot
	// machines never use a name twice.
	ForgetAfter = 7 * 24 * time.Hour
)

// Registry is the fleet's durable state. Commands go in, events come out. It reads no clock, draws no random number,
// depends on no map's order and touches nothing outside itself: every replica that applies the same log is the same.
type Registry struct {
	Version   int             `json:"v"` // CommandVersion of the lifeboat that wrote it, if that is above this one's
	Nodes     map[string]Node `json:"nodes"`
	Events    []Event         `json:"events"` // the newest, oldest first
	LastEvent uint64          `json:"last_event"`
	Manifests []*ManifestRef  `json:"manifests"` // the newest, oldest first
	Hosts     HostsState      `json:"hosts,omitzero"`
	Audit     []AuditRecord   `json:"audit,omitempty"` // the newest, oldest first
	LastAudit uint64          `json:"last_audit,omitempty"`
	Hooks     map[string]Mark `json:"hooks,omitempty"` // how far webhooks are, by name; replaced, never changed
	Door      Door            `json:"door,omitzero"`
	Lives     map[string]Life `json:"lives,omitempty"`      // of apps; replaced, never changed
	Schedule  *Schedule       `json:"schedule,omitempty"`   // of maintenance; replaced, never changed
	Banned    []string        `json:"banned,omitempty"`     // incarnations of nodes that are GONE, the newest last; replaced, never changed
	LivesSaid uint64          `json:"lives_said,omitempty"` // the newest event of an app that ended or was resumed
	Forgotten fates           `json:"forgotten,omitempty"`  // replaced, never changed
	Began     time.Time       `json:"began,omitzero"`       // of the first event, or of the last restore: it tells one log from another
}

// New is a registry without nodes.
func New() *Registry { return &Registry{Version: CommandVersion, Nodes: map[string]Node{}} }

// Apply applies c whole, or refuses it with an error and applies nothing of it but its audit record.
func (m *Registry) Apply(c Command) ([]Event, error) {
	if m.decided(c.Asked) {
		return nil, nil
	}
	t, err := m.try(c)
	events := t.events
	m.audit(c, events, err)
	if err != nil {
		return nil, err
	}
	for i := range events {
		events[i].Term = c.Term
	}
	m.mark(c.Mark)
	m.Hosts, m.Schedule, m.Door, m.Lives = t.hosts, t.schedule, t.door, t.lives
	var forgotten []Node
	for i, n := range t.nodes {
		if n.State == "" {
			forgotten = append(forgotten, m.Nodes[c.Nodes[i]])
			delete(m.Nodes, c.Nodes[i])
		} else {
			m.ban(n)
			m.Nodes[n.Name] = n
		}
	}
	m.Forgotten = m.Forgotten.with(forgotten, c.At)
	m.record(events)
	if len(c.Apps) > 0 && len(events) > 0 {
		m.LivesSaid = m.LastEvent
	}
	if c.Manifest != nil && len(events) > 0 {
		m.keep(c.Manifest)
	}
	return events, nil
}

// Idle reports whether c would change nothing, so that it need not go into the log. An operator's command goes there in any case, for its
// audit record, unless the same call was done before.
func (m *Registry) Idle(c Command) bool {
	if c.Asked != nil {
		return m.decided(c.Asked)
	}
	t, err := m.try(c)
	return err == nil && len(t.events) == 0 && !t.changed && !m.moves(c.Mark)
}

// Refuses is why c would be refused; nil: it would not.
func (m *Registry) Refuses(c Command) error {
	_, err := m.try(c)
	return err
}

// trial is what a command would do.
type trial struct {
	nodes    []Node
	hosts    HostsState
	schedule *Schedule
	door     Door
	lives    map[string]Life
	changed  bool // the door or the lives: that need not have an event
	events   []Event
}

// try works out what c would do.
func (m *Registry) try(c Command) (t trial, err error) {
	t.hosts, t.schedule, t.door, t.lives = m.Hosts, m.Schedule, m.Door, m.Lives
	switch {
	case c.Pass != nil:
		err = m.tryPass(c, &t)
	case len(c.Apps) > 0:
		err = m.tryApps(c, &t)
	default:
		err = m.tryNodes(c, &t)
	}
	if err != nil {
		return trial{}, err
	}
	return t, nil
}

// tryNodes works out the nodes, the host files and the schedule after c. A step without events counts as no change, and its node stays as
// it was.
func (m *Registry) tryNodes(c Command, t *trial) (err error) {
	var told []Event
	if t.schedule, told, err = m.scheduleAfter(c); err != nil {
		return err
	}
	t.hosts, t.events = m.hostsAfter(c)
	t.events = append(t.events, told...)
	for _, name := range m.touched(c) {
		was := m.Nodes[name]
		s := step{
			node: was, cmd: c, name: name, banned: c.Facts != nil && slices.Contains(m.Banned, c.Facts.Incarnation),
			hosts: t.hosts.Lists, wasScheduled: m.Schedule, schedule: t.schedule, last: m.LastEvent + uint64(len(t.events)),
		}
		if err := s.take(); err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
		if len(s.events) == 0 {
			s.node = was
		}
		if s.node.State != was.State {
			s.node.Since = c.At
		}
		t.nodes, t.events = append(t.nodes, s.node), append(t.events, s.events...)
	}
	return nil
}

// record appends events. It never writes into the part of the slice that a snapshot may be reading.
func (m *Registry) record(events []Event) {
	if m.Began.IsZero() && len(events) > 0 {
		m.Began = events[0].Time
	}
	m.Events = append(m.Events, events...)
	m.LastEvent += uint64(len(events))
	if len(m.Events) >= KeptEvents+KeptEvents/4 {
		m.Events = slices.Clone(m.Events[len(m.Events)-KeptEvents:])
	}
}

// Log is a number that tells one log from another; 0: it has no event yet.
func (m *Registry) Log() uint64 {
	if m.Began.IsZero() {
		return 0
	}
	return uint64(m.Began.UnixNano())
}

// Freeze is a copy that later commands do not change.
func (m *Registry) Freeze() *Registry {
	c := *m
	c.Nodes = make(map[string]Node, len(m.Nodes))
	maps.Copy(c.Nodes, m.Nodes)
	return &c
}

// Thaw reads a snapshot: a frozen registry as JSON.
func Thaw(data []byte) (*Registry, error) {
	m := New()
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	m.Version = max(m.Version, CommandVersion)
	return m, nil
}

// Told reports whether a node has given its account of an incident. The incident may be an earlier one, when the node has not heard yet that
// it is to leave again.
func (m *Registry) Told(n Node, incident string) bool {
	return slices.ContainsFunc(m.Manifests, func(r *ManifestRef) bool {
		return r.Node == n.Name && r.Incarnation == n.Incarnation && r.Incident == incident
	})
}
