package migration

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"crypto/sha256"
)

// The stream between two agents, and the record in a segment, are the same sequence of frames, so a receiver stores what
// it verified as it came. A frame is a 16-byte header and a payload:
//
//	0  type      1 byte
//	1  reserved  3 bytes, zero
//	4  length    4 bytes, big-endian: of the payload
//	8  transfer  4 bytes, big-endian: the block's number in this stream; 0 where a frame is about the stream
//	12 crc       4 bytes, big-endian: CRC-32C of the payload followed by bytes 0..11 of the header
//
// The payload comes first in the checksum so that its own CRC-32C falls out on the way: the list of those is what a
// block's Sum is made of, whatever stream it came by.
//
//	sender   -> receiver   hello  (open data* close | open data* abort)*
//	receiver -> sender     grant | refuse,  then receipts
const headerBytes = 16

// ChunkBytes is the payload of every data frame but a member's last one, so the place of any byte in a segment can be
// computed. 256 KiB is where coalesced writes stop getting cheaper (measured; docs/benchmarks.md).
const ChunkBytes = 256 << 10

// Protocol is the ALPN name of the framed stream. The number rises when an old peer could not understand a new one.
const Protocol = "lifeboat-blocks/1"

type frameType uint8

const (
	frameHello    frameType = 1 // sender's first word
	frameGrant    frameType = 2 // receiver: go on, there is this much room
	frameRefuse   frameType = 3 // receiver: not now, and why; the stream ends
	frameOpen     frameType = 4 // a block begins
	frameData     frameType = 5 // a piece of it
	frameClose    frameType = 6 // it is complete, and this is its sum
	frameAbort    frameType = 7 // it changed under the sender's hands: forget it
	frameReceipts frameType = 8 // receiver: these are durable, those are not and why
)

// maxPayload bounds what is read before memory is taken for it.
var maxPayload = [...]int{
	frameHello:    8 << 10,
	frameGrant:    1 << 10,
	frameRefuse:   8 << 10,
	frameOpen:     32 << 10,
	frameData:     ChunkBytes,
	frameClose:    64,
	frameAbort:    4 << 10,
	frameReceipts: 64 << 10,
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errCorrupt = errors.New("checksum does not match")

// putHeader fills h for a payload whose own CRC-32C is sum.
func putHeader(h []byte, t frameType, transfer uint32, length int, sum uint32) {
	h[0], h[1], h[2], h[3] = byte(t), 0, 0, 0
	binary.BigEndian.PutUint32(h[4:], uint32(length))
	binary.BigEndian.PutUint32(h[8:], transfer)
	binary.BigEndian.PutUint32(h[12:], crc32.Update(sum, castagnoli, h[:12]))
}

// appendFrame appends a whole frame to b.
func appendFrame(b []byte, t frameType, transfer uint32, payload []byte) []byte {
	var h [headerBytes]byte
	putHeader(h[:], t, transfer, len(payload), crc32.Checksum(payload, castagnoli))
	return append(append(b, h[:]...), payload...)
}

// frame is one frame as read; raw is header and payload and, like payload, is valid until the next read.
type frame struct {
	typ      frameType
	transfer uint32
	sum      uint32 // CRC-32C of the payload alone
	raw      []byte
	payload  []byte
}

// frameReader reads and verifies frames. Its buffer is one frame long.
type frameReader struct {
	r   io.Reader
	buf []byte
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: r, buf: make([]byte, headerBytes+ChunkBytes)}
}

// next returns io.EOF only between frames; a stream cut inside one is io.ErrUnexpectedEOF.
func (fr *frameReader) next() (frame, error) {
	h := fr.buf[:headerBytes]
	if _, err := io.ReadFull(fr.r, h); err != nil {
		return frame{}, err
	}
	t := frameType(h[0])
	length := binary.BigEndian.Uint32(h[4:])
	switch {
	case t == 0 || int(t) >= len(maxPayload):
		return frame{}, fmt.Errorf("frame of unknown type %d", t)
	case h[1] != 0 || h[2] != 0 || h[3] != 0:
		return frame{}, fmt.Errorf("frame of type %d: reserved bytes are set", t)
	case length > uint32(maxPayload[t]):
		return frame{}, fmt.Errorf("frame of type %d: %d bytes, at most %d", t, length, maxPayload[t])
	}
	raw := fr.buf[:headerBytes+int(length)]
	payload := raw[headerBytes:]
	if _, err := io.ReadFull(fr.r, payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	sum := crc32.Checksum(payload, castagnoli)
	if crc32.Update(sum, castagnoli, h[:12]) != binary.BigEndian.Uint32(h[12:]) {
		return frame{}, fmt.Errorf("frame of type %d, %d bytes: %w", t, length, errCorrupt)
	}
	return frame{typ: t, transfer: binary.BigEndian.Uint32(h[8:]), sum: sum, raw: raw, payload: payload}, nil
}

// Sum identifies the content of a block: SHA-256, cut to 16 bytes, over each member's size and the CRC-32C of each of
// its chunks. It is a name for bytes that were already checked chunk by chunk, and costs next to nothing.
type Sum [16]byte

type summer struct{ h hash.Hash }

func newSummer() summer { return summer{sha256.New()} }

func (s summer) reset() { s.h.Reset() }

func (s summer) member(size int64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(size))
	s.h.Write(b[:])
}

func (s summer) chunk(crc uint32) {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], crc)
	s.h.Write(b[:])
}

func (s summer) sum() (sum Sum) {
	var full [sha256.Size]byte
	copy(sum[:], s.h.Sum(full[:0]))
	return sum
}

// ---- payloads: varints and length-prefixed strings, in the order of the fields -----------------------------------------

type hello struct {
	Node     string
	Incident string
}

func (m hello) append(b []byte) []byte { return appendString(appendString(b, m.Node), m.Incident) }

func parseHello(p []byte) (m hello, err error) {
	d := decoder{p: p}
	m.Node, m.Incident = d.string(), d.string()
	return m, d.end("hello")
}

type grant struct{ RoomBytes int64 }

func (m grant) append(b []byte) []byte { return binary.AppendVarint(b, m.RoomBytes) }

func parseGrant(p []byte) (m grant, err error) {
	d := decoder{p: p}
	m.RoomBytes = d.varint()
	return m, d.end("grant")
}

type refuse struct {
	Reason      string
	RetryMillis int64
}

func (m refuse) append(b []byte) []byte {
	return binary.AppendVarint(appendString(b, m.Reason), m.RetryMillis)
}

func parseRefuse(p []byte) (m refuse, err error) {
	d := decoder{p: p}
	m.Reason, m.RetryMillis = d.string(), d.varint()
	return m, d.end("refuse")
}

// opening is what a receiver must know before the first byte. Members' names are relative to the id's scope.
type opening struct {
	ID      string
	Kind    string
	Layout  string
	ModTime int64 // Unix nanoseconds, of the newest member
	Members []memberSize
}

type memberSize struct {
	Name  string
	Bytes int64
}

// maxMembers: a map output has three; a little room for engines to come.
const maxMembers = 16

func (m opening) append(b []byte) []byte {
	b = appendString(appendString(appendString(b, m.ID), m.Kind), m.Layout)
	b = binary.AppendVarint(b, m.ModTime)
	b = binary.AppendUvarint(b, uint64(len(m.Members)))
	for _, e := range m.Members {
		b = binary.AppendVarint(appendString(b, e.Name), e.Bytes)
	}
	return b
}

func parseOpening(p []byte) (m opening, err error) {
	d := decoder{p: p}
	m.ID, m.Kind, m.Layout, m.ModTime = d.string(), d.string(), d.string(), d.varint()
	n := d.uvarint()
	if d.err == nil && (n == 0 || n > maxMembers) {
		return m, fmt.Errorf("block of %d members, want 1 to %d", n, maxMembers)
	}
	for range n {
		m.Members = append(m.Members, memberSize{d.string(), d.varint()})
	}
	if err := d.end("open"); err != nil {
		return m, err
	}
	id, err := ParseBlockID(m.ID)
	if err != nil {
		return m, err
	}
	for _, e := range m.Members {
		if e.Bytes < 0 {
			return m, fmt.Errorf("member %q: %d bytes", e.Name, e.Bytes)
		}
		if _, err := ParseBlockID(string(id.sibling(e.Name))); err != nil {
			return m, fmt.Errorf("member: %w", err)
		}
	}
	return m, nil
}

func (m opening) bytes() (n int64) {
	for _, e := range m.Members {
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
)

const maxReasonBytes = 500

func appendVerdicts(b []byte, vs []verdict) []byte {
	b = binary.AppendUvarint(b, uint64(len(vs)))
	for _, v := range vs {
		b = binary.AppendUvarint(b, uint64(v.Transfer))
		b = append(b, byte(v.Code))
		b = appendString(b, v.Reason[:min(len(v.Reason), maxReasonBytes)])
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
	p   []byte
	err error
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

func (d *decoder) string() string { return string(d.bytes()) }

func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.p)) {
		d.fail()
		return nil
	}
	v := d.p[:n]
	d.p = d.p[n:]
	return bytes.Clone(v)
}

func (d *decoder) end(what string) error {
	switch {
	case d.err != nil:
		return fmt.Errorf("payload of %s: %w", what, d.err)
	case len(d.p) != 0:
		return fmt.Errorf("payload of %s: %d bytes too many", what, len(d.p))
	}
	return nil
}
