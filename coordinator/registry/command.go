package registry

import (
	"errors"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
)

// CommandVersion is raised when an older coordinator would apply a command in another way, be it that it does not know the verb. A
// coordinator stops at a command of a version that it does not know, and at the snapshot of a registry that has applied some.
const CommandVersion = 1

// Command is one entry of the log: what to do to which nodes. The leader stamps At.
type Command struct {
	Version int       `json:"v"`
	At      time.Time `json:"at"`
	Do      Verb      `json:"do"`
	Nodes   []string  `json:"nodes"`
	Asked   *Asking   `json:"asked,omitempty"` // the operator's call behind it, which is recorded with its outcome
	Term    uint64    `json:"-"`               // of the log entry

	Facts       *Facts       `json:"facts,omitempty"`        // register
	UnderNotice bool         `json:"under_notice,omitempty"` // register
	Reattach    bool         `json:"reattach,omitempty"`     // register: the agent ran all along, the coordinator lost sight of it
	Incarnation string       `json:"incarnation,omitempty"`  // of the calling node, on all commands that nodes cause
	Notice      *Notice      `json:"notice,omitempty"`       // announce
	Incident    string       `json:"incident,omitempty"`     // withdraw
	Order       *Order       `json:"order,omitempty"`        // decommission; At is set when it is first applied
	LeavingOnly bool         `json:"leaving_only,omitempty"` // decommission: only nodes that leave already
	Overdue     bool         `json:"overdue,omitempty"`      // lose: nodes that announced a restart and are not back, and no others
	Manifest    *ManifestRef `json:"manifest,omitempty"`     // goodbye
	Hosts       *hosts.Lists `json:"hosts,omitempty"`        // hosts; Order has the timeout of hosts without their own
	Force       bool         `json:"force,omitempty"`        // hosts
	Reason      string       `json:"reason,omitempty"`       // refuse-hosts, exclude, deactivate, reactivate, forget

	Timeouts  map[string]time.Duration `json:"timeouts,omitempty"`  // decommission: per node, instead of the order's
	Drain     bool                     `json:"drain,omitempty"`     // decommission: and deactivate the nodes, in case they come back
	Unsaid    bool                     `json:"unsaid,omitempty"`    // decommission: the timeout is a default; nodes with an order keep theirs
	Executors map[string][]Executor    `json:"executors,omitempty"` // by node: what runs on nodes that begin to leave, or are ended
	After     time.Duration            `json:"after,omitempty"`     // delay: for how long; forget: nodes gone for longer; schedule, machines-up: the lead time
	Mark      *Mark                    `json:"mark,omitempty"`      // mark
	Pass      *Pass                    `json:"pass,omitempty"`      // pass
	Apps      []string                 `json:"apps,omitempty"`      // beat-app, end-apps, lapse-apps, resume-apps; Reason says why they are over
	Owner     string                   `json:"owner,omitempty"`     // with Apps: the caller's certificate; empty: an operator, or the clock
	Lease     time.Duration            `json:"lease,omitempty"`     // beat-app
	Windows   []Outage                 `json:"windows,omitempty"`   // schedule
	Add       bool                     `json:"add,omitempty"`       // schedule: the windows that are there stay
	Renews    bool                     `json:"renews,omitempty"`    // schedule: as Add, but machines move on from windows that are over
	Machines  []Scheduled              `json:"machines,omitempty"`  // machines-down, machines-up
	Named     bool                     `json:"named,omitempty"`     // forget: by an operator, no matter how long the nodes have been gone
}

// maintains reports whether c is about the maintenance schedule.
func (c Command) maintains() bool {
	return c.Do == DoSchedule || c.Do == DoMachinesDown || c.Do == DoMachinesUp
}

// Verb is what a command does.
type Verb string

const (
	DoRegister     Verb = "register"
	DoAnnounce     Verb = "announce"
	DoWithdraw     Verb = "withdraw"
	DoUnavailable  Verb = "unavailable"
	DoGoodbye      Verb = "goodbye"
	DoDecommission Verb = "decommission"
	DoRecommission Verb = "recommission"
	DoLose         Verb = "lose"
	DoTimeout      Verb = "timeout"
	DoDelay        Verb = "delay" // the leader's clock was set ahead by After: the clocks of orders began so much later
	DoForget       Verb = "forget"
	DoRelease      Verb = "release-brake" // an operator says that the nodes that the brake held are LOST
	DoTell         Verb = "tell"          // of executors that were not known when their node began to leave
	DoExclude      Verb = "exclude"
	DoReadmit      Verb = "readmit"
	DoDeactivate   Verb = "deactivate"
	DoReactivate   Verb = "reactivate"
	DoHosts        Verb = "hosts" // this and the next three concern every node
	DoSchedule     Verb = "schedule"
	DoMachinesDown Verb = "machines-down"
	DoMachinesUp   Verb = "machines-up"
	DoRefuseHosts  Verb = "refuse-hosts"
	DoRecord       Verb = "record" // the audit record of a call that is no command
	DoMark         Verb = "mark"   // how far a webhook is
)

// Reasons why a command is refused. A refused command changes nothing.
var (
	ErrUnknownNode = errors.New("not known here")
	ErrIncarnation = errors.New("registered with another incarnation")
	ErrOwnNotice   = errors.New("leaving on its own notice")
)

// Event is one thing that happened. Indexes of events in the log have no gaps, and stay the same after a restart.
type Event struct {
	Index uint64            `json:"index"`
	Term  uint64            `json:"term,omitempty"` // of the leader that decided it
	Soft  uint64            `json:"-"`              // of an event that is in no log: its number behind Index
	Time  time.Time         `json:"time"`
	Type  string            `json:"type"`
	Node  string            `json:"node"`
	Data  map[string]string `json:"data,omitempty"`
}

// Place is e's position among all events, the soft ones too.
func (e Event) Place() api.Place { return api.Place{Term: e.Term, Index: e.Index, Soft: e.Soft} }
