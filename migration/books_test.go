package migration

import (
	"slices"
	"testing"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// handedOut returns the books of a lane that was handed out blocks of 100 bytes, and whose peer has room for 1000.
func handedOut(ids ...inventory.BlockID) *books {
	b := &books{room: plan.RoomOf(1000), changed: make(chan struct{}, 1)}
	var batch []plan.Entry
	for _, id := range ids {
		batch = append(batch, plan.Entry{Block: inventory.Block{ID: id, Members: []inventory.Member{{Bytes: 100}}}})
	}
	b.handed(batch)
	return b
}

func idsOf(entries []plan.Entry) (ids []inventory.BlockID) {
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	return ids
}

// The peer owes an answer for what was written whole, until it answers. What it never was sent it cannot settle.
func TestBooksKnowWhatIsOwed(t *testing.T) {
	b := handedOut("x", "y", "z")
	for range 3 {
		b.begin()
	}
	if _, _, ok := b.begin(); ok {
		t.Error("a fourth of three blocks was begun")
	}
	if b.owed() || b.bytes() != 300 || b.roomLeft().Most != 700 {
		t.Errorf("before anything is written: owed is %t, with %d bytes on their way and room for %d", b.owed(), b.bytes(), b.roomLeft().Most)
	}
	if b.written(2); !b.owed() {
		t.Error("two are written, and nothing is owed")
	}
	moved, refused := b.settle([]wire.Verdict{{Transfer: 2, Code: wire.VerdictFull}, {Transfer: 9}, {Transfer: 1}, {Transfer: 1}}, nil)
	if !slices.Equal(idsOf(moved), []inventory.BlockID{"x"}) || len(refused) != 1 || refused[0].ID != "y" {
		t.Errorf("got %v moved and %v refused, want x and y", idsOf(moved), refused)
	}
	select {
	case <-b.changed:
	default:
		t.Error("who waits for answers is not woken")
	}
	if b.owed() || b.idle() || b.has(1) || !b.has(3) {
		t.Error("z is on its way, not written whole, and nothing else is")
	}
	if e, ok := b.forget(3); !ok || e.ID != "z" || !b.idle() {
		t.Errorf("got %s, %t, want z off the books", e.ID, ok)
	}
	if _, ok := b.forget(3); ok {
		t.Error("z was forgotten twice")
	}
}

// A peer on probation gets one block, and others when it has answered.
func TestBooksOpenOneOnProbation(t *testing.T) {
	b := handedOut("x", "y", "z")
	b.onProbation = true
	if !b.open() || !b.onTrial() {
		t.Error("nothing may be begun")
	}
	if b.begin(); b.open() {
		t.Error("a second block may be begun")
	}
	if b.trust(); !b.open() || b.onTrial() {
		t.Error("it answered, and a second may not be begun")
	}
	b.begin()
	if !b.open() {
		t.Error("of small blocks a third may not be begun")
	}
	b.inflight.bytes = wire.MaxInflightBytes
	if b.open() {
		t.Error("of large blocks a third may be begun")
	}
}

// What is not answered and not begun goes back once, and answers that come later find nothing.
func TestBooksAreEmptiedOnce(t *testing.T) {
	b := handedOut("x", "y", "z")
	b.begin()
	b.begin()
	for _, want := range [][]inventory.BlockID{{"x", "y", "|", "z"}, {"|"}} {
		var got []inventory.BlockID
		b.empty(func(e plan.Entry) { got = append(got, e.ID) }, func(rest []plan.Entry) { got = append(append(got, "|"), idsOf(rest)...) })
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if moved, _ := b.settle([]wire.Verdict{{Transfer: 1}}, nil); len(moved) > 0 || b.owed() {
		t.Errorf("an answer settles %v", idsOf(moved))
	}
	b.handed(handedOut("w").takeRest())
	if _, transfer, _ := b.begin(); transfer != 3 {
		t.Errorf("the next block has number %d again", transfer)
	}
}
