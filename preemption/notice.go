package preemption

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Kind is what will happen to the machine.
type Kind string

const (
	KindRebalance    Kind = "rebalance"    // the cloud sees a raised risk; often nothing follows
	KindDecommission Kind = "decommission" // the coordinator wants the node emptied
	KindManual       Kind = "manual"       // somebody on this host said DecommissionSelf
	KindHibernate    Kind = "hibernate"    // memory is saved and comes back, local disks do not; there is no lead at all
	KindStop         Kind = "stop"         // the machine may come back, without its local disks
	KindTerminate    Kind = "terminate"    // the machine is gone for good
)

// kinds lists every Kind from the least to the most severe.
var kinds = []Kind{KindRebalance, KindDecommission, KindManual, KindHibernate, KindStop, KindTerminate}

// ParseKind reads a Kind written by a person.
func ParseKind(word string) (Kind, error) {
	if k := Kind(word); k.severity() >= 0 {
		return k, nil
	}
	return "", fmt.Errorf("kind %q is not known: use one of %q", word, kinds)
}

// severity is the place of k among the kinds, or -1.
func (k Kind) severity() int { return slices.Index(kinds, k) }

// Stance is what a node under a notice of this kind does. Of rebalance recommendations about 7 in 10 are followed by no
// reclaim (36 nodes over 17 h, aws-node-termination-handler #141), so they start copying early and drain nothing.
func (k Kind) Stance() Stance {
	switch {
	case k == KindRebalance:
		return StancePreCopy
	case k.severity() >= 0:
		return StanceDrain
	default:
		return StanceWatch // a word from a newer journal: nobody should place anything here, no more is known
	}
}

// Stance is how far the node goes in getting ready to leave. Each one includes those before it.
type Stance string

const (
	StanceIgnore  Stance = "ignore"   // carry on
	StanceWatch   Stance = "watch"    // place nothing here and never choose this node as a peer
	StancePreCopy Stance = "pre-copy" // carry blocks away, rate limited, while the node serves on
	StanceDrain   Stance = "drain"    // leave
)

var stances = []Stance{StanceIgnore, StanceWatch, StancePreCopy, StanceDrain}

// AtLeast tells whether s goes as far as t.
func (s Stance) AtLeast(t Stance) bool { return slices.Index(stances, s) >= slices.Index(stances, t) }

// The sources' names, as they stand in Notice.Source, in manifests and in the coordinator's view.
const (
	SourceEC2      = "ec2"
	SourceManual   = "manual"   // the socket: the command line and the shell trigger
	SourceSignal   = "signal"   // SIGPWR
	SourceOperator = "operator" // the coordinator's directive
)

// Notice is one source's word that this machine will or may go. It is plain data: it can be copied and kept as JSON.
type Notice struct {
	// Source and ID together say which notice this is. The ID never holds a time that the source may move, and is the
	// same again after a restart.
	Source string `json:"source"`
	ID     string `json:"id"`

	Kind     Kind      `json:"kind"`
	Deadline time.Time `json:"deadline,omitzero"` // the cloud's word, nothing taken off; zero: not known
	SeenAt   time.Time `json:"seen_at"`           // when this host first heard it
	Reason   string    `json:"reason,omitempty"`

	// Withdrawn says that the source took the notice back. The other fields say what it had been.
	Withdrawn bool `json:"withdrawn,omitempty"`
}

// same tells whether both are words about one and the same notice.
func (n Notice) same(other Notice) bool { return n.Source == other.Source && n.ID == other.ID }

// Source is one place where notices come from.
type Source interface {
	// Next blocks until there is something new to say: a notice, another kind or deadline of one that was given before,
	// or its withdrawal. It returns an error when ctx ends, and may be called again after any error. One goroutine at a
	// time calls it.
	Next(ctx context.Context) (Notice, error)
}

// slack is how far a deadline may move without being news: clouds write whole seconds, and a time that remains, turned
// into an instant, moves with every delivery.
const slack = time.Second

// sameInstant tells whether two deadlines differ by no more than slack.
func sameInstant(a, b time.Time) bool {
	return a.IsZero() == b.IsZero() && a.Sub(b).Abs() <= slack
}
