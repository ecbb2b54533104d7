package preemption

import (
	"fmt"
	"slices"
)

// Kind is what will happen to the machine.
type Kind string

const (
	KindFreeze       Kind = "freeze"       // it stands still for seconds; memory and disks stay
	KindMigrate      Kind = "migrate"      // it is moved alive to another host; memory and disks stay
	KindRebalance    Kind = "rebalance"    // the cloud sees a raised risk; often nothing follows
	KindMaintenance  Kind = "maintenance"  // the host will be worked on; most machines live through it
	KindReboot       Kind = "reboot"       // it comes back with its disks, without its memory
	KindRetirement   Kind = "retirement"   // its hardware is failing: it will be stopped for good
	KindRedeploy     Kind = "redeploy"     // it comes back on another host, without its local disks
	KindDecommission Kind = "decommission" // the coordinator wants the node emptied
	KindManual       Kind = "manual"       // somebody on this host said DecommissionSelf
	KindShutdown     Kind = "shutdown"     // the operating system is going down
	KindScaleIn      Kind = "scale-in"     // its group of instances has no more use for it
	KindHibernate    Kind = "hibernate"    // memory is saved and comes back, local disks do not; there is no lead at all
	KindStop         Kind = "stop"         // the machine may come back, without its local disks
	KindPreempt      Kind = "preempt"      // its capacity is wanted: stopped or deleted, as it was set up
	KindTerminate    Kind = "terminate"    // the machine is gone for good
)

// Kinds lists every Kind from the least to the most severe.
func Kinds() []Kind {
	return []Kind{
		KindFreeze, KindMigrate, KindRebalance, KindMaintenance, KindReboot, KindRetirement, KindRedeploy, KindDecommission,
		KindManual, KindShutdown, KindScaleIn, KindHibernate, KindStop, KindPreempt, KindTerminate,
	}
}

// ParseKind reads a Kind written by a person.
func ParseKind(word string) (Kind, error) {
	if k := Kind(word); k.severity() >= 0 {
		return k, nil
	}
	return "", fmt.Errorf("kind %q is not known: use one of %q", word, Kinds())
}

// severity is the place of k among the kinds, or -1.
func (k Kind) severity() int { return slices.Index(Kinds(), k) }

// Appointed reports whether notices of this kind name a time well ahead, until which the machine is safe.
func (k Kind) Appointed() bool {
	switch k {
	case KindFreeze, KindMaintenance, KindReboot, KindRetirement, KindRedeploy:
		return true
	default:
		return false
	}
}

// endsWithBoot reports whether a boot of the machine settles a notice of this kind.
func (k Kind) endsWithBoot() bool {
	return k == KindFreeze || k == KindReboot || k == KindRedeploy || k == KindShutdown || k == KindHibernate
}

// Stance is how far the node goes in getting ready to leave. Each one includes those before it.
type Stance string

const (
	StanceIgnore  Stance = "ignore"   // carry on
	StanceWatch   Stance = "watch"    // place nothing here and never choose this node as a peer
	StancePreCopy Stance = "pre-copy" // carry blocks away, rate limited, while the node serves on
	StanceDrain   Stance = "drain"    // leave
)

// stances lists every Stance, each one going further than those before it.
func stances() []Stance { return []Stance{StanceIgnore, StanceWatch, StancePreCopy, StanceDrain} }

// AtLeast tells whether s goes as far as t.
func (s Stance) AtLeast(t Stance) bool {
	return slices.Index(stances(), s) >= slices.Index(stances(), t)
}

// Policy says how far the node goes for each kind of notice. A kind that it leaves out has its default.
type Policy map[Kind]Stance

// Stance is how far the node goes for a notice of kind k, once it is time to.
func (p Policy) Stance(k Kind) Stance {
	if s, ok := p[k]; ok {
		return s
	}
	return k.stance()
}

// stance is the default. The node leaves when its local disks will go, and copies ahead when they only might: about 7 in 10
// rebalance recommendations are followed by no reclaim (36 nodes over 17 h, aws-node-termination-handler #141). A reboot
// keeps the disks, and a pause keeps everything.
func (k Kind) stance() Stance {
	switch k {
	case KindFreeze, KindMigrate:
		return StanceIgnore
	case KindRebalance, KindMaintenance:
		return StancePreCopy
	case KindReboot:
		return StanceWatch
	}
	if k.severity() < 0 {
		return StanceWatch // a kind from a newer journal: place nothing here, for nothing else is known
	}
	return StanceDrain
}
