package wire

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/migration/fields"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// The payloads of frames are varints and length-prefixed strings, in the order of the fields. A new field of a hello, a grant or an answer
// comes after the fields that it has: an older build leaves it alone. An opening gets no new field: segments keep openings as they came, and
// one with more in it than is known is refused whole.

// Hello is a sender's first word.
type Hello struct {
	Node     string
	Incident string
	Alone    bool // its coordinator does not answer: nobody spreads what it sends over the peers
	Advised  bool // it also sends to a node that is advised to go: nobody else takes these blocks, and they go no further
}

// Append appends the payload.
func (m Hello) Append(b []byte) []byte {
	return fields.AppendFlags(fields.AppendString(fields.AppendString(b, m.Node), m.Incident), m.Alone, m.Advised)
}

// ParseHello reads the payload of a hello.
func ParseHello(p []byte) (m Hello, err error) {
	d := fields.Decode(p)
	m.Node, m.Incident = d.Text(), d.Text()
	d.Flags(&m.Alone, &m.Advised)
	return m, d.EndOrMore("hello")
}

// Grant is a receiver's answer to a sender that may send.
type Grant struct {
	RoomBytes  int64
	VaultBytes int64    // of these, in its vault
	Places     []string // the stores whose blocks land in their place there: blocks of other stores go to the vault
	Shared     bool     // other senders are served too, and some may find no place
	Advised    bool     // the receiver's node may leave itself: a sender that has another peer turns to that
}

// Append appends the payload.
func (m Grant) Append(b []byte) []byte {
	b = binary.AppendUvarint(binary.AppendVarint(binary.AppendVarint(b, m.RoomBytes), m.VaultBytes), uint64(len(m.Places)))
	for _, store := range m.Places {
		b = fields.AppendString(b, store)
	}
	return fields.AppendFlags(b, m.Shared, m.Advised)
}

// ParseGrant reads the payload of a grant.
func ParseGrant(p []byte) (m Grant, err error) {
	d := fields.Decode(p)
	m.RoomBytes, m.VaultBytes = d.Varint(), d.Varint()
	for n := d.Uvarint(); n > 0 && d.Sound(); n-- {
		m.Places = append(m.Places, d.Text())
	}
	d.Flags(&m.Shared, &m.Advised)
	return m, d.EndOrMore("grant")
}

// Refuse is a receiver's answer to a sender that may not send now.
type Refuse struct {
	Reason      string
	RetryMillis int64
	Stays       bool // the reason will hold for a while: it is not "busy", nor "stopping", which may be a restart
}

// Append appends the payload.
func (m Refuse) Append(b []byte) []byte {
	return fields.AppendFlags(binary.AppendVarint(fields.AppendString(b, m.Reason), m.RetryMillis), m.Stays)
}

// ParseRefuse reads the payload of a refusal.
func ParseRefuse(p []byte) (m Refuse, err error) {
	d := fields.Decode(p)
	m.Reason, m.RetryMillis = d.Text(), d.Varint()
	d.Flags(&m.Stays)
	return m, d.EndOrMore("refuse")
}

// Opening is what a receiver must know before the first byte. Members' names are relative to the id's scope.
type Opening struct {
	ID      string
	Kind    string
	Layout  string
	Origin  string // the node that the block was born on; empty: the sender
	ModTime int64  // Unix nanoseconds, of the newest member
	Value   int64  // what it is worth, in milliseconds of work; 0: nobody said
	Members []MemberSize
}

// MemberSize is a member of a block to come, and its size.
type MemberSize struct {
	Name  string
	Bytes int64
}

// MaxMembers: a map output has three; a little room for engines to come.
const MaxMembers = 16

// maxMemberBytes is a pebibyte: more than any file system here lets a file have, and little enough that sums of it cannot
// overflow.
const maxMemberBytes = 1 << 50

// Append appends the payload.
func (o Opening) Append(b []byte) []byte {
	b = fields.AppendString(fields.AppendString(fields.AppendString(fields.AppendString(b, o.ID), o.Kind), o.Layout), o.Origin)
	b = binary.AppendVarint(binary.AppendVarint(b, o.ModTime), o.Value)
	b = binary.AppendUvarint(b, uint64(len(o.Members)))
	for _, e := range o.Members {
		b = binary.AppendVarint(fields.AppendString(b, e.Name), e.Bytes)
	}
	return b
}

// ParseOpening reads the payload of an opening. It accepts only members whose names and sizes are allowed.
func ParseOpening(p []byte) (m Opening, err error) {
	d := fields.DecodeText(p)
	m.ID, m.Kind, m.Layout, m.Origin, m.ModTime, m.Value = d.Text(), d.Text(), d.Text(), d.Text(), d.Varint(), d.Varint()
	n := d.Uvarint()
	if d.Sound() && (n == 0 || n > MaxMembers) {
		return m, fmt.Errorf("block of %d members, want 1 to %d", n, MaxMembers)
	}
	m.Members = make([]MemberSize, 0, min(n, MaxMembers))
	for range n {
		m.Members = append(m.Members, MemberSize{Name: d.Text(), Bytes: d.Varint()})
	}
	if err := d.End("open"); err != nil {
		return m, err
	}
	id, err := inventory.ParseBlockID(m.ID)
	if err != nil {
		return m, err
	}
	if err := checkOrigin(m.Origin, len(p)-len(m.Origin)); err != nil {
		return m, fmt.Errorf("block %s: %w", id, err)
	}
	if m.Value < 0 || m.Value > inventory.MostValue.Milliseconds() {
		return m, fmt.Errorf("worth %d ms, want 0 to %d", m.Value, inventory.MostValue.Milliseconds())
	}
	for i, e := range m.Members {
		if e.Bytes < 0 || e.Bytes > maxMemberBytes {
			return m, fmt.Errorf("member %q: %d bytes", e.Name, e.Bytes)
		}
		if slices.ContainsFunc(m.Members[:i], func(other MemberSize) bool { return other.Name == e.Name }) {
			return m, fmt.Errorf("member %q comes twice", e.Name)
		}
		if e.Name == id.Name() {
			continue // the id was parsed above
		}
		if _, err := inventory.ParseBlockID(string(id.Sibling(e.Name))); err != nil {
			return m, fmt.Errorf("member: %w", err)
		}
	}
	return m, nil
}

// maxOrigin is the longest name of a node (certs.Name.Check), with its length before it.
const maxOrigin = 128 + 2

// checkOrigin refuses an origin that no node can have: nobody could ask a coordinator about it. beside is how long the opening is without
// it. Once the block is handed on its origin stands in it, and an opening that is too long then ends the stream of a node that leaves.
func checkOrigin(node string, beside int) error {
	if most := MaxPayload[FrameOpen] - maxOrigin; beside > most {
		return fmt.Errorf("opening of %d bytes without its origin, at most %d", beside, most)
	}
	if node == "" {
		return nil
	}
	if err := (certs.Name{Role: certs.RoleNode, Name: node}).Check(); err != nil {
		return fmt.Errorf("origin %.80q: %w", node, err)
	}
	return nil
}

// Bytes is the size of all members together.
func (o Opening) Bytes() (n int64) {
	for _, e := range o.Members {
		n += e.Bytes
	}
	return n
}

// Verdict is the receiver's last word on one transfer: an empty reason is a receipt.
type Verdict struct {
	Transfer uint32
	Code     VerdictCode
	Reason   string
}

// VerdictCode says what became of a block.
type VerdictCode uint8

const (
	VerdictDurable VerdictCode = 0 // a receipt
	VerdictFull    VerdictCode = 1 // no room here: try elsewhere
	VerdictFailed  VerdictCode = 2 // this peer could not land it: try again or elsewhere
	// The id names other bytes at this peer already. At another peer it would only be ambiguous: the block is lost.
	VerdictConflict VerdictCode = 3
)

// Have answers an again: so many of the block's bytes the receiver has from an earlier stream.
type Have struct {
	Transfer uint32
	Bytes    int64
}

// Append appends the payload.
func (m Have) Append(b []byte) []byte {
	return binary.AppendVarint(binary.AppendUvarint(b, uint64(m.Transfer)), m.Bytes)
}

// ParseHave reads the payload of a have.
func ParseHave(p []byte) (m Have, err error) {
	d := fields.Decode(p)
	t := d.Uvarint()
	m.Transfer, m.Bytes = uint32(t), d.Varint()
	if t > 1<<32-1 || m.Bytes < 0 {
		d.Fail()
	}
	return m, d.EndOrMore("have")
}

const maxReasonBytes = 500

// AppendVerdicts appends the payload of receipts.
func AppendVerdicts(b []byte, vs []Verdict) []byte {
	b = binary.AppendUvarint(b, uint64(len(vs)))
	for _, v := range vs {
		b = binary.AppendUvarint(b, uint64(v.Transfer))
		b = append(b, byte(v.Code))
		b = fields.AppendString(b, strings.ToValidUTF8(v.Reason[:min(len(v.Reason), maxReasonBytes)], "")) // it may be cut amid a character
	}
	return b
}

// VerdictsPerFrame keeps a frame of receipts, each with the longest reason, under its bound.
const VerdictsPerFrame = 120

// ParseVerdicts reads the payload of receipts.
func ParseVerdicts(p []byte) ([]Verdict, error) {
	d := fields.Decode(p)
	n := d.Uvarint()
	if n > VerdictsPerFrame {
		return nil, fmt.Errorf("%d receipts in a frame, at most %d", n, VerdictsPerFrame)
	}
	vs := make([]Verdict, 0, n)
	for range n {
		t := d.Uvarint()
		if d.Sound() && t > 1<<32-1 {
			return nil, fmt.Errorf("receipt for transfer %d", t)
		}
		vs = append(vs, Verdict{Transfer: uint32(t), Code: VerdictCode(d.Byte()), Reason: d.Text()})
	}
	return vs, d.EndOrMore("receipts")
}

// AppendSizes appends the members of a block as an opening lists them.
func AppendSizes(all []MemberSize, members []inventory.Member) []MemberSize {
	for _, m := range members {
		all = append(all, MemberSize{Name: m.Name, Bytes: m.Bytes})
	}
	return all
}

// What both ends of a stream hold to.
const (
	// A sender waits for receipts when so much is on its way in more than one block. These bounds must cover what a link carries
	// between two commits: 64 MiB are 50 ms at 10 Gbit/s, and with half as many blocks two lanes of tiny ones stood still
	// for a tenth of a drain (docs/design/measured.md).
	MaxInflightBytes  = 64 << 20
	MaxInflightBlocks = 8192
	// SenderTimeout is how long a sender may fall silent inside a block. Its disk may be slow; it must not hold room and a
	// stream at the receiver for ever. Between blocks it may wait as long as its machine lives: TCP's keep-alive tells (conn.go).
	SenderTimeout = 2 * time.Minute
	// AliveEvery is how often a receiver says that it is there. While its disk syncs it may have no receipt to send for seconds; without
	// this frame, the sender could not tell it from a machine that is gone.
	AliveEvery = time.Second
	// ResumeLeast is the least part of a block that is worth keeping, and asking about, when its stream broke off: a third of a second
	// at 1 Gbit/s.
	ResumeLeast = 32 << 20
)
