package coordinator

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// scroll is a replica that is told what its log would say.
type scroll struct {
	*testing.T
	*replica
	index uint64
}

func newScroll(t *testing.T) *scroll { return &scroll{T: t, replica: newReplica()} }

func (s *scroll) apply(term uint64, c registry.Command) {
	s.Helper()
	c.Version, c.At = registry.CommandVersion, t0
	data, err := json.Marshal(c)
	if err != nil {
		s.Fatal(err)
	}
	s.index++
	if v := s.Apply(&raft.Log{Index: s.index, Term: term, Data: data}).(verdict); v.err != nil {
		s.Fatal(v.err)
	}
}

// happen makes one durable event each, of node a.
func (s *scroll) happen(term uint64, times int) {
	s.Helper()
	for range times {
		if n, ok := s.machine.Nodes["a"]; ok && n.State == registry.Active {
			s.apply(term, registry.Command{Do: registry.DoLose, Nodes: []string{"a"}})
			continue
		}
		s.apply(term, registry.Command{Do: registry.DoRegister, Nodes: []string{"a"}, Facts: &registry.Facts{Incarnation: "i"}})
	}
}

func (s *scroll) glimpse(times int) {
	for range times {
		s.hub.publishSoft(registry.Event{Time: t0, Type: evMoved, Node: "a"})
	}
}

func (s *scroll) after(p api.Place) *reader { return &reader{replica: s.replica, at: p} }

// all reads what there is.
func (r *reader) all() (events []*told) {
	for {
		more, _ := r.more()
		if len(more) == 0 {
			return events
		}
		events = append(events, more...)
	}
}

// A follower that goes on after any place that was ever told gets every later event of the log once, and the soft events of leaders in their
// order, whatever happened meanwhile.
func TestEveryPlaceIsOneToGoOnFrom(t *testing.T) {
	s := newScroll(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	var term uint64
	var history []*told
	follower := s.after(api.Place{})
	for range 300 {
		if rnd.IntN(10) == 0 || term == 0 {
			term += 1 + rnd.Uint64N(2)
			s.hub.enter(term)
		}
		s.happen(term, rnd.IntN(3))
		s.glimpse(rnd.IntN(3))
		if rnd.IntN(4) > 0 {
			history = append(history, follower.all()...)
		}
	}
	history = append(history, follower.all()...)
	for i, from := range history {
		if from.Type == evGap || i > 0 && from.Place().Compare(history[i-1].Place()) <= 0 {
			t.Fatalf("got %s %s after %s", from.Type, from.Place(), history[i-1].Place())
		}
		if got := s.after(from.Place()).all(); !slices.Equal(places(got), places(history[i+1:])) {
			t.Fatalf("after %s: got %v, want %v", from.Place(), places(got), places(history[i+1:]))
		}
	}
	// Another coordinator has only the events of the log.
	other := newScroll(t)
	other.machine, other.index = s.machine, s.index
	other.hub.reset(s.machine.LastEvent)
	other.hub.enter(term + 1)
	for i, from := range history {
		var want []api.Place
		for _, e := range history[i+1:] {
			if e.Soft == 0 {
				want = append(want, e.Place())
			}
		}
		if got := other.after(from.Place()).all(); !slices.Equal(places(got), want) {
			t.Fatalf("after %s, of another coordinator: got %v, want %v", from.Place(), places(got), want)
		}
	}
}

func places(events []*told) (all []api.Place) {
	for _, e := range events {
		all = append(all, e.Place())
	}
	return all
}

// The term is that of the entry, also after a snapshot was read.
func TestEventsKeepTheirTerm(t *testing.T) {
	s := newScroll(t)
	s.happen(3, 2)
	s.happen(5, 1)
	m, err := registry.Thaw([]byte(written(t, s.machine.Freeze())))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*registry.Registry{s.machine, m} {
		var got []uint64
		for _, e := range m.Events {
			got = append(got, e.Term)
		}
		if want := []uint64{3, 3, 5}; !slices.Equal(got, want) {
			t.Errorf("got terms %v, want %v", got, want)
		}
	}
}

func TestGap(t *testing.T) {
	s := newScroll(t)
	s.hub.enter(7)
	s.happen(3, 10)
	s.happen(7, 2*registry.KeptEvents)
	kept := s.machine.Events
	oldest, last := kept[0].Index, s.machine.LastEvent
	if oldest < 20 {
		t.Fatalf("nothing was dropped: the oldest is %d", oldest)
	}
	for at, why := range map[api.Place]string{
		{Term: 3, Index: 5}:                "no longer kept",
		{Term: 7, Index: oldest - 2}:       "the last one before it is not kept",
		{Index: 4}:                         "without a term",
		{Term: 7, Index: last + 1}:         "of the future",
		{Index: last + 1}:                  "of the future, without a term",
		{Term: 8, Index: last}:             "of a leader that there was not",
		{Term: 6, Index: last}:             "decided by another leader",
		{Term: 6, Index: last, Soft: 1}:    "told behind an event that had yet to come",
		{Term: 8, Index: oldest, Soft: 12}: "told by a leader that there was not",
	} {
		r := s.after(at)
		got := r.all()
		if got[0].Type != evGap || got[0].Index != oldest-1 || got[0].Data["after"] != at.String() || got[0].Data["list"] != "nodes" {
			t.Errorf("after %s (%s): got %+v", at, why, got[0].Event)
			continue
		}
		if len(got) != len(kept)+1 || got[1].Index != oldest || got[len(kept)].Index != last || r.gaps != 1 {
			t.Errorf("after %s (%s): got %d events and %d gaps, want all %d that are kept", at, why, len(got), r.gaps, len(kept))
		}
	}
	for _, at := range []api.Place{{}, {Index: oldest - 1}, {Index: oldest}, {Term: 7, Index: oldest}, {Term: 7, Index: last}, {Term: 7, Index: last, Soft: 4}} {
		if got := s.after(at).all(); len(got) > 0 && got[0].Type == evGap {
			t.Errorf("after %s: got a gap", at)
		}
	}
	if got := len(s.after(api.Place{}).all()); got != len(kept) {
		t.Errorf("from the start: got %d events, want the %d that are kept", got, len(kept))
	}
}

// A follower that is far behind reads the log, and is told if it missed soft events of a leader.
func TestSlowReader(t *testing.T) {
	s := newScroll(t)
	s.hub.enter(1)
	s.happen(1, 3)
	slow, quiet := s.after(api.Place{}), s.after(api.Place{})
	if got := len(slow.all()) + len(quiet.all()); got != 6 {
		t.Fatalf("got %d events, want 6", got)
	}
	s.happen(1, 2*hubKept)
	got := slow.all()
	if len(got) != 2*hubKept || got[0].Index != 4 || slow.gaps != 0 {
		t.Errorf("got %d events from %s and %d gaps, want %d from 1.4 and none", len(got), got[0].Place(), slow.gaps, 2*hubKept)
	}
	s.glimpse(1)
	s.happen(1, 2*hubKept)
	got = quiet.all()
	if got[0].Type != evGap || got[0].Place() != (api.Place{Term: 1, Index: 3}) || quiet.gaps != 1 {
		t.Errorf("got %s at %s and %d gaps, want one at 1.3", got[0].Type, got[0].Place(), quiet.gaps)
	}
	for i, e := range got[1:] {
		if e.Index != uint64(4+i) {
			t.Fatalf("got index %d at %d: an event of the log is missing", e.Index, i)
		}
	}
}

// Memory is bounded whatever a leader tells.
func TestHubIsBounded(t *testing.T) {
	s := newScroll(t)
	s.hub.enter(1)
	s.happen(1, 1)
	s.glimpse(10 * hubKept)
	if got := len(s.hub.events); got < hubKept || got > hubKept+hubKept/4 {
		t.Errorf("got %d events at hand, want %d and a quarter more at most", got, hubKept)
	}
	if got := s.after(api.Place{Term: 1, Index: 1}).all(); got[0].Type != evGap || got[len(got)-1].Soft != 10*hubKept {
		t.Errorf("got %s first and %s last", got[0].Type, got[len(got)-1].Place())
	}
}

func TestFilter(t *testing.T) {
	gap, lost := &told{Event: registry.Event{Type: evGap}}, &told{Event: registry.Event{Type: registry.EventLost, Node: "a"}}
	for _, c := range []struct {
		filter
		want bool
	}{{filter{}, true}, {filter{types: []string{registry.EventLost, evMoved}}, true}, {filter{types: []string{evMoved}}, false}, {filter{node: "a"}, true}, {filter{node: "b"}, false},
		{filter{types: []string{registry.EventLost}, node: "b"}, false}} {
		if got := c.wants(lost); got != c.want || !c.wants(gap) {
			t.Errorf("%+v: got %t, want %t, and a gap in any case", c.filter, got, c.want)
		}
	}
	for _, bad := range []filter{{types: make([]string, maxFilter+1)}, {types: []string{"\x1b"}}, {types: []string{registry.EventLost, "nodelost"}}, {node: strings.Repeat("a", maxName+1)}} {
		if bad.check() == nil {
			t.Errorf("a filter of %d types and %d bytes of node was taken", len(bad.types), len(bad.node))
		}
	}
}

// An event is encoded once, however many followers read it.
func TestEventsAreWrittenOnce(t *testing.T) {
	e := &told{Event: registry.Event{Index: 4, Term: 2, Soft: 1, Time: t0, Type: evMoved, Node: "b", Data: map[string]string{"from": "a"}}}
	first, second := e.sse(), e.sse()
	if &first[0] != &second[0] {
		t.Error("an event was written twice")
	}
	want := fmt.Sprintf("id: 2.4.1\nevent: BlocksMoved\ndata: {\"index\":4,\"term\":2,\"soft\":1,\"time\":%q,\"type\":\"BlocksMoved\",\"node\":\"b\",\"data\":{\"from\":\"a\"}}\n\n", registry.Stamp(t0))
	if string(first) != want {
		t.Errorf("got %q, want %q", first, want)
	}
}

func TestSubscribersAreBounded(t *testing.T) {
	a := newAudience()
	app, operator := certs.Name{Role: certs.RoleApp, Name: "app"}, certs.Name{Role: certs.RoleOperator, Name: "o"}
	var all []*subscriber
	for _, who := range []certs.Name{app, operator} {
		for range mostOfName {
			s, err := a.join(who, func() {})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		if _, err := a.join(who, func() {}); who == app && (err == nil || !strings.Contains(err.Error(), "2048 of app app follow")) {
			t.Errorf("one more of one name: got %v, want a refusal", err)
		}
	}
	other := certs.Name{Role: certs.RoleApp, Name: "other"}
	if _, err := a.join(other, func() {}); err == nil || !strings.Contains(err.Error(), "4096 follow") {
		t.Errorf("got %v, want a refusal", err)
	}
	all[0].leave()
	if _, err := a.join(other, func() {}); err != nil {
		t.Error(err)
	}
}

// All types of events are in the documentation, and all types in the documentation exist.
func TestEventTypesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]bool{}
	for row := range strings.Lines(table) {
		for name := range strings.SplitSeq(strings.Split(row, "|")[1], ",") {
			if name = strings.TrimSpace(name); name != "**soft**" {
				documented[name] = true
			}
		}
	}
	told := map[string]bool{}
	for _, name := range eventTypes {
		told[name] = true
	}
	if !maps.Equal(documented, told) {
		t.Errorf("documented are %v, told %v", slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(told)))
	}
}
