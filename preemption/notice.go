package preemption

import (
	"context"
	"time"
)

// The sources' names, as they stand in Notice.Source, in manifests and in the coordinator's view.
const (
	SourceEC2       = "ec2"
	SourceGCE       = "gce"
	SourceAzure     = "azure"
	SourceLogind    = "logind"   // the operating system: logind says that it goes down, or SIGTERM came while it does
	SourceManual    = "manual"   // the socket: the command line and the shell trigger
	SourceSignal    = "signal"   // SIGPWR
	SourceOperator  = "operator" // the coordinator's directive
	SourceRehearsal = "simulate" // somebody on this host rehearses a notice
)

// Notice is one source's word that this machine will or may go. It is plain data: it can be copied and kept as JSON.
type Notice struct {
	// Source and ID together say which notice this is. The ID contains no time that the source may move, and is the same
	// after a restart.
	Source string `json:"source"`
	ID     string `json:"id"`

	Kind     Kind      `json:"kind"`
	Deadline time.Time `json:"deadline,omitzero"` // the cloud's word, nothing taken off; zero: not known
	SeenAt   time.Time `json:"seen_at"`           // when this host first heard it
	Reason   string    `json:"reason,omitempty"`

	// Appointed says that the machine is safe until the deadline, which lies well ahead: there is no use in leaving early.
	Appointed bool `json:"appointed,omitempty"`

	// Stands says that the source shows the notice until the announced event has happened or was called off. The deadline is
	// then a guess, or the first instant at which that may be; its passing means nothing.
	Stands bool `json:"stands,omitempty"`

	// Stance is how far the node goes, by the policy in force when the notice joined its incident. Sources leave it empty.
	Stance Stance `json:"stance,omitempty"`

	// LeftAt is when the node began to leave for this notice: when it joined its incident, when it was time to, or when its
	// deadline was last moved closer. Sources leave it empty. Zero: the node has not begun.
	LeftAt time.Time `json:"left_at,omitzero"`

	// Withdrawn says that the source took the notice back. The other fields say what it had been.
	Withdrawn bool `json:"withdrawn,omitempty"`
}

// Name identifies a notice: two words about the same notice have the same name.
func (n Notice) Name() string { return n.Source + " " + n.ID }

// same reports whether both are words about the same notice.
func (n Notice) same(other Notice) bool { return n.Source == other.Source && n.ID == other.ID }

// Source is one place where notices come from.
type Source interface {
	// Next blocks until there is something new to say: a notice, another kind or deadline of one that was given before,
	// or its withdrawal. It returns an error when ctx ends, and may be called again after any error. One goroutine at a
	// time calls it.
	Next(ctx context.Context) (Notice, error)
}

// Runner is a Source that listens in goroutines of its own, while Run runs. A Watcher runs it.
type Runner interface {
	// Run listens until ctx ends, and returns nil then.
	Run(ctx context.Context) error
}

// Believer is a Source that remembers what it has said.
type Believer interface {
	// Believe takes the notices that were known before a restart: the source does not give them again, and withdraws those
	// that no longer hold. It is called before the first Next, and passes over notices of other sources.
	Believe(notices ...Notice)
}

// Releaser is a Source that is told when the node has done all that its notice asked for, so that the machine may go sooner:
// it releases a lock, acknowledges an event, or completes a hook.
type Releaser interface {
	// Release is called once for each notice in force when the node is empty. It may be called beside Next.
	Release(ctx context.Context, n Notice) error
}

// Healthy is a Source that asks a service, which may not answer.
type Healthy interface {
	// Health may be called beside Next.
	Health() []Health
}

// Health is how well a source is informed. A source that asks at several paths has one Health for each.
type Health struct {
	Source   string
	Path     string
	LastGood time.Time // of the last definite answer, a notice or none; zero: there was none yet
	Trouble  string    // why there was none since; "": all is well
}

// slack is how far a deadline may move without being news: clouds write whole seconds, and a remaining time that is turned
// into an instant gives a slightly different one each time.
const slack = time.Second

// sameInstant reports whether two deadlines differ by no more than slack.
func sameInstant(a, b time.Time) bool {
	return a.IsZero() == b.IsZero() && a.Sub(b).Abs() <= slack
}
