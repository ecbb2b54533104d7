package migration

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The payloads of frames are varints and length-prefixed strings, in the order of the fields.

type hello struct {
	Node     string
	Incident string
	Alone    bool // its coordinator does not answer: nobody spreads what it sends
	Advised  bool // what it sends is for a node, too, that is advised to go: nobody else takes it, and it goes no further
	Apart    bool // it knows of the room in the vault: earlier versions take a grant that tells it for a broken one
	Resumes  bool // it may go on with a block that a stream broke off in
}

func (m hello) append(b []byte) []byte {
	return appendFlags(appendString(appendString(b, m.Node), m.Incident), m.Alone, m.Advised, m.Apart, m.Resumes)
}

// appendFlags appends a byte with a bit for each, the first the lowest, and none where none is set: versions that know of fewer took
// that for all false.
func appendFlags(b []byte, flags ...bool) []byte {
	var set byte
	for i, is := range flags {
		if is {
			set |= 1 << i
		}
	}
	if set == 0 {
		return b
	}
	return append(b, set)
}

// flags are the bits that appendFlags wrote.
func (d *decoder) flags(into ...*bool) {
	if !d.more() {
		return
	}
	set := d.byte()
	for i, is := range into {
		*is = set&(1<<i) != 0
	}
}

func parseHello(p []byte) (m hello, err error) {
	d := decoder{p: p}
	m.Node, m.Incident = d.string(), d.string()
	d.flags(&m.Alone, &m.Advised, &m.Apart, &m.Resumes)
	return m, d.end("hello")
}

type grant struct {
	RoomBytes int64
	Shared    bool       // others are served too, and some may find no place
	Advised   bool       // its node may leave itself: whoever has another peer turns to that
	Apart     *vaultRoom // nil: not told
	Resumes   bool       // it keeps, for a while, what came of a block when its stream breaks
	Quota     bool       // the room is what a quota leaves, which counts blocks' bytes and not their records
}

func (m grant) append(b []byte) []byte {
	b = binary.AppendVarint(b, m.RoomBytes)
	if m.Apart == nil {
		return appendFlags(b, m.Shared, m.Advised, false, m.Resumes, m.Quota)
	}
	b = appendFlags(b, m.Shared, m.Advised, true, m.Resumes, m.Quota)
	b = binary.AppendUvarint(binary.AppendVarint(b, m.Apart.VaultBytes), uint64(len(m.Apart.Places)))
	for _, store := range m.Apart.Places {
		b = appendString(b, store)
	}
	return b
}

func parseGrant(p []byte) (m grant, err error) {
	d, told := decoder{p: p}, false
	m.RoomBytes = d.varint()
	d.flags(&m.Shared, &m.Advised, &told, &m.Resumes, &m.Quota)
	if told {
		m.Apart = &vaultRoom{VaultBytes: d.varint()}
		for n := d.uvarint(); n > 0 && d.err == nil; n-- {
			m.Apart.Places = append(m.Apart.Places, d.string())
		}
	}
	return m, d.end("grant")
}

type refuse struct {
	Reason      string
	RetryMillis int64
	Stays       bool // it will hold for a while: not "busy", and not "stopping", which may be a restart
}

func (m refuse) append(b []byte) []byte {
	b = binary.AppendVarint(appendString(b, m.Reason), m.RetryMillis)
	if m.Stays {
		b = append(b, 1)
	}
	return b
}

func parseRefuse(p []byte) (m refuse, err error) {
	d := decoder{p: p}
	m.Reason, m.RetryMillis = d.string(), d.varint()
	if d.more() {
		m.Stays = d.byte() == 1
	}
	return m, d.end("refuse")
}

// opening is what a receiver must know before the first byte. Members' names are relative to the id's scope.
type opening struct {
	ID      string
	Kind    string
	Layout  string
	Origin  string // the node that the block was born on; empty: the sender
	ModTime int64  // Unix nanoseconds, of the newest member
	Value   int64  // what it is worth, in milliseconds of work; 0: nobody said
	Members []memberSize
}

type memberSize struct {
	Name  string
	Bytes int64
}

// maxMembers: a map output has three; a little room for engines to come.
const maxMembers = 16

// maxMemberBytes is a pebibyte: more than any file system here lets a file have, and little enough that sums of it cannot
// overflow.
const maxMemberBytes = 1 << 50

func (o opening) append(b []byte) []byte {
	b = appendString(appendString(appendString(appendString(b, o.ID), o.Kind), o.Layout), o.Origin)
	b = binary.AppendVarint(b, o.ModTime)
	b = binary.AppendUvarint(b, uint64(len(o.Members)))
	for _, e := range o.Members {
		b = binary.AppendVarint(appendString(b, e.Name), e.Bytes)
	}
	if o.Value != 0 { // what came later stands last, and only where there is something to say: others need not know it
		b = binary.AppendVarint(b, o.Value)
	}
	return b
}

func parseOpening(p []byte) (m opening, err error) {
	d := decoder{p: p, text: string(p)}
	m.ID, m.Kind, m.Layout, m.Origin, m.ModTime = d.string(), d.string(), d.string(), d.string(), d.varint()
	n := d.uvarint()
	if d.err == nil && (n == 0 || n > maxMembers) {
		return m, fmt.Errorf("block of %d members, want 1 to %d", n, maxMembers)
	}
	m.Members = make([]memberSize, 0, min(n, maxMembers))
	for range n {
		m.Members = append(m.Members, memberSize{d.string(), d.varint()})
	}
	if d.more() {
		if m.Value = d.varint(); m.Value == 0 {
			d.fail() // nobody writes that
		}
	}
	if err := d.end("open"); err != nil {
		return m, err
	}
	id, err := ParseBlockID(m.ID)
	if err != nil {
		return m, err
	}
	if m.Value < 0 || m.Value > MostValue.Milliseconds() {
		return m, fmt.Errorf("worth %d ms, want 0 to %d", m.Value, MostValue.Milliseconds())
	}
	for i, e := range m.Members {
		if e.Bytes < 0 || e.Bytes > maxMemberBytes {
			return m, fmt.Errorf("member %q: %d bytes", e.Name, e.Bytes)
		}
		if slices.ContainsFunc(m.Members[:i], func(other memberSize) bool { return other.Name == e.Name }) {
			return m, fmt.Errorf("member %q comes twice", e.Name)
		}
		if e.Name == id.Name() {
			continue // its id was looked at
		}
		if _, err := ParseBlockID(string(id.sibling(e.Name))); err != nil {
			return m, fmt.Errorf("member: %w", err)
		}
	}
	return m, nil
}

func (o opening) bytes() (n int64) {
	for _, e := range o.Members {
		n += e.Bytes
	}
	return n
}

// verdict is the receiver's last word on one transfer: an empty reason is a receipt.
type verdict struct {
	Transfer uint32
	Code     verdictCode
	Reason   string
}

type verdictCode uint8

const (
	verdictDurable verdictCode = 0 // a receipt
	verdictFull    verdictCode = 1 // no room here: try elsewhere
	verdictFailed  verdictCode = 2 // this peer could not land it: try again or elsewhere
	// The id names other bytes there already. Elsewhere it would only be ambiguous: the block is lost.
	verdictConflict verdictCode = 3
)

// have says how many of a block's bytes its receiver has of an earlier stream.
type have struct {
	Transfer uint32
	Bytes    int64
}

func (m have) append(b []byte) []byte {
	return binary.AppendVarint(binary.AppendUvarint(b, uint64(m.Transfer)), m.Bytes)
}

func parseHave(p []byte) (m have, err error) {
	d := decoder{p: p}
	t := d.uvarint()
	m.Transfer, m.Bytes = uint32(t), d.varint()
	if t > 1<<32-1 || m.Bytes < 0 {
		d.fail()
	}
	return m, d.end("have")
}

const maxReasonBytes = 500

func appendVerdicts(b []byte, vs []verdict) []byte {
	b = binary.AppendUvarint(b, uint64(len(vs)))
	for _, v := range vs {
		b = binary.AppendUvarint(b, uint64(v.Transfer))
		b = append(b, byte(v.Code))
		b = appendString(b, strings.ToValidUTF8(v.Reason[:min(len(v.Reason), maxReasonBytes)], "")) // it may be cut amid a character
	}
	return b
}

// verdictsPerFrame keeps a frame of receipts, each with the longest reason, under its bound.
const verdictsPerFrame = 120

func parseVerdicts(p []byte) ([]verdict, error) {
	d := decoder{p: p}
	n := d.uvarint()
	if n > verdictsPerFrame {
		return nil, fmt.Errorf("%d receipts in a frame, at most %d", n, verdictsPerFrame)
	}
	vs := make([]verdict, 0, n)
	for range n {
		t := d.uvarint()
		if d.err == nil && t > 1<<32-1 {
			return nil, fmt.Errorf("receipt for transfer %d", t)
		}
		vs = append(vs, verdict{uint32(t), verdictCode(d.byte()), d.string()})
	}
	return vs, d.end("receipts")
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decoder takes fields off a payload; after the first fault every further field is zero and end tells.
type decoder struct {
	p    []byte
	text string // the whole payload, that strings are cut out of; "": each is made by itself
	err  error
}

var errShort = errors.New("cut short")

func (d *decoder) fail() { d.err, d.p = errShort, nil }

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.p)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.p = d.p[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.p)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.p = d.p[n:]
	return v
}

func (d *decoder) byte() byte {
	if len(d.p) == 0 {
		d.fail()
		return 0
	}
	v := d.p[0]
	d.p = d.p[1:]
	return v
}

func (d *decoder) string() string {
	v := d.take()
	if d.text == "" {
		return string(v)
	}
	end := len(d.text) - len(d.p)
	return d.text[end-len(v) : end]
}

func (d *decoder) bytes() []byte { return bytes.Clone(d.take()) }

// take is valid as long as the payload is.
func (d *decoder) take() []byte {
	n := d.uvarint()
	if n > uint64(len(d.p)) {
		d.fail()
		return nil
	}
	v := d.p[:n]
	d.p = d.p[n:]
	return v
}

// more says whether there is something that an earlier lifeboat would not have written.
func (d *decoder) more() bool { return d.err == nil && len(d.p) > 0 }

func (d *decoder) end(what string) error {
	switch {
	case d.err != nil:
		return fmt.Errorf("payload of %s: %w", what, d.err)
	case len(d.p) != 0:
		return fmt.Errorf("payload of %s: %d bytes too many", what, len(d.p))
	}
	return nil
}
