package api

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Place is the position of an event among all events of a fleet. Events come in the order of their places; the zero place
// is before the first event.
//
// Its text is TERM.INDEX, or TERM.INDEX.SOFT for an event that is not in the log, and that only one leader tells. An INDEX
// alone is a place as well: it is after that event of the log, and before the events that a leader tells behind it and all
// events of a greater index.
type Place struct {
	Term  uint64 // of the leader that decided or told it; 0: not known
	Index uint64 // of the event in the log, or of the last one before it
	Soft  uint64 // 0: the event is in the log
}

// ParsePlace reads the text of a place.
func ParsePlace(text string) (Place, error) {
	parts := strings.Split(text, ".")
	if len(parts) > 3 {
		return Place{}, placeFault(text)
	}
	var n [3]uint64
	for i, part := range parts {
		var err error
		if n[i], err = strconv.ParseUint(part, 10, 64); err != nil || part != strconv.FormatUint(n[i], 10) {
			return Place{}, placeFault(text)
		}
	}
	if len(parts) == 1 {
		return Place{Index: n[0]}, nil
	}
	return Place{Term: n[0], Index: n[1], Soft: n[2]}, nil
}

func placeFault(text string) error {
	if len(text) > 64 {
		text = text[:64] + "..."
	}
	return fmt.Errorf("%q is no place of an event: want TERM.INDEX, TERM.INDEX.SOFT or INDEX, such as 3.1204", text)
}

// String is the text that ParsePlace reads.
func (p Place) String() string {
	switch {
	case p.Soft > 0:
		return fmt.Sprintf("%d.%d.%d", p.Term, p.Index, p.Soft)
	case p.Term > 0:
		return fmt.Sprintf("%d.%d", p.Term, p.Index)
	}
	return strconv.FormatUint(p.Index, 10)
}

// MarshalText implements encoding.TextMarshaler.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Place) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePlace(string(text))
	return err
}

// Compare is negative when p is before q, and positive when p is after q. Where either term is not known the indexes
// decide; at the same index an event of the log is before all events that a leader tells behind it.
func (p Place) Compare(q Place) int {
	if p.Term == 0 || q.Term == 0 {
		return cmp.Or(cmp.Compare(p.Index, q.Index), cmp.Compare(min(p.Soft, 1), min(q.Soft, 1)))
	}
	return cmp.Or(cmp.Compare(p.Term, q.Term), cmp.Compare(p.Index, q.Index), cmp.Compare(p.Soft, q.Soft))
}

// PlaceOf is the place of an event.
func PlaceOf(e *Event) Place { return Place{Term: e.GetTerm(), Index: e.GetIndex(), Soft: e.GetSoft()} }

// PlaceAfter is the place after which a request asks for events.
func PlaceAfter(r *EventsRequest) Place {
	return Place{Term: r.GetAfterTerm(), Index: r.GetAfter(), Soft: r.GetAfterSoft()}
}
