package coordinator

import "time"

const (
	// offAfter is when an operator should look at a node's clock. Nothing here reads it: time crosses the wire as what
	// remains. Its logs do, and so does the cloud, whose notices name instants.
	offAfter = time.Second
	farAfter = 10 * time.Second
	// wellWithin keeps a clock that is off by just so much from being news again and again.
	wellWithin = offAfter / 2
)

// astray is how badly a node's clock is off.
type astray int

const (
	onTime astray = iota
	offTime
	farOff
)

// now is how badly it is off when its clock is ahead by so much, given how it was.
func (was astray) now(ahead time.Duration) astray {
	switch ahead = ahead.Abs(); {
	case ahead > farAfter:
		return farOff
	case was == farOff && ahead > farAfter/2:
		return farOff
	case ahead > offAfter, was != onTime && ahead > wellWithin:
		return offTime
	}
	return onTime
}
