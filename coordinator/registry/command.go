package registry

import (
	"errors"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
)

// CommandVersion is raised when an older coordinator could not apply a command as meant: it stops at what it cannot read.
const CommandVersion = 1

// Command is one entry of the log: what to do to which nodes. The leader stamps At.
type Command struct {
	Version int       `json:"v"`
	At      time.Time `json:"at"`
	Do      Verb      `json:"do"`
	Nodes   []string  `json:"nodes"`
	Asked   *Asking   `json:"asked,omitempty"` // by an operator: recorded with what becomes of it
	Term    uint64    `json:"-"`               // of the entry that it came in

	Facts       *Facts       `json:"facts,omitempty"`        // register
	UnderNotice bool         `json:"under_notice,omitempty"` // register
	Reattach    bool         `json:"reattach,omitempty"`     // register: we lost sight of it, it did not go away
	Incarnation string       `json:"incarnation,omitempty"`  // of the caller, on all that a node says
	Notice      *Notice      `json:"notice,omitempty"`       // announce
	Incident    string       `json:"incident,omitempty"`     // withdraw
	Order       *Order       `json:"order,omitempty"`        // decommission; At is set when it is first applied
	LeavingOnly bool         `json:"leaving_only,omitempty"` // decommission: others stay as they are
	Overdue     bool         `json:"overdue,omitempty"`      // lose: nodes that announced a restart, too
	Manifest    *ManifestRef `json:"manifest,omitempty"`     // goodbye
	Hosts       *hosts.Lists `json:"hosts,omitempty"`        // hosts; Order has the timeout of those without their own
	Force       bool         `json:"force,omitempty"`        // hosts
	Reason      string       `json:"reason,omitempty"`       // refuse-hosts, exclude, deactivate, reactivate, forget

	Timeouts  map[string]time.Duration `json:"timeouts,omitempty"`  // decommission: of single nodes, rather than the order's
	Drain     bool                     `json:"drain,omitempty"`     // decommission: and give them nothing new, should they come back
	Unsaid    bool                     `json:"unsaid,omitempty"`    // decommission: nobody said the order's timeout; nodes that have one keep it
	Executors map[string][]Executor    `json:"executors,omitempty"` // what ran on nodes that begin to leave, or are ended
	After     time.Duration            `json:"after,omitempty"`     // forget: those that have been gone for longer; schedule, machines-up: who has longer stays
	Mark      *Mark                    `json:"mark,omitempty"`      // mark
	Pass      *Pass                    `json:"pass,omitempty"`      // pass
	Apps      []string                 `json:"apps,omitempty"`      // what is said of apps; Reason says why they are over
	Owner     string                   `json:"owner,omitempty"`     // of apps: whose certificate says so; empty: an operator, or the clock
	Lease     time.Duration            `json:"lease,omitempty"`     // beat-app
	Windows   []Outage                 `json:"windows,omitempty"`   // schedule
	Add       bool                     `json:"add,omitempty"`       // schedule: those that stand in it stay
	Renews    bool                     `json:"renews,omitempty"`    // schedule: and some take the place of those that are over
	Machines  []Scheduled              `json:"machines,omitempty"`  // machines-down, machines-up
	Named     bool                     `json:"named,omitempty"`     // forget: an operator names them, however short they have been gone
}

// maintains says whether c is about the maintenance schedule.
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
	DoForget       Verb = "forget"
	DoRelease      Verb = "release-brake" // an operator says that those are lost
	DoTell         Verb = "tell"          // of executors that nobody knew when their node began to leave
	DoExclude      Verb = "exclude"
	DoReadmit      Verb = "readmit"
	DoDeactivate   Verb = "deactivate"
	DoReactivate   Verb = "reactivate"
	DoHosts        Verb = "hosts" // about every node there is, as the next three
	DoSchedule     Verb = "schedule"
	DoMachinesDown Verb = "machines-down"
	DoMachinesUp   Verb = "machines-up"
	DoRefuseHosts  Verb = "refuse-hosts"
	DoRecord       Verb = "record" // of what was asked, and is no command
	DoMark         Verb = "mark"   // how far a webhook is
)

// Reasons why a command is refused. Nothing changed then.
var (
	ErrUnknownNode = errors.New("not known here")
	ErrIncarnation = errors.New("registered with another incarnation")
	ErrOwnNotice   = errors.New("leaving on its own notice")
)

// Event is one thing that happened. The index of one in the log has no gaps and is the same after a restart.
type Event struct {
	Index uint64            `json:"index"`
	Term  uint64            `json:"term,omitempty"` // of the leader that decided it
	Soft  uint64            `json:"-"`              // its number behind index, of what is in no log
	Time  time.Time         `json:"time"`
	Type  string            `json:"type"`
	Node  string            `json:"node"`
	Data  map[string]string `json:"data,omitempty"`
}

// Place is where e stands among all that are told, the soft ones too.
func (e Event) Place() api.Place { return api.Place{Term: e.Term, Index: e.Index, Soft: e.Soft} }
