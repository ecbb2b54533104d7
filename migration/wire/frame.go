// Package wire is the framed stream between two agents: the frames, and the payloads of those that are about a block or the stream. Segments
// on disk consist of the same frames. It is also the TLS connection under a stream (conn.go), which crosses into the kernel in large pieces.
// It opens no connection and keeps no state of a stream: a stream's two ends do.
package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
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
// The payload comes first in the checksum so that its own CRC-32C falls out on the way: a block's Sum is made of the list of its
// chunks' CRC-32Cs, whatever stream it came by.
//
//	sender   -> receiver   hello  ((open | again) data* (close | abort))*
//	receiver -> sender     grant | refuse,  then receipts, and have for each again
//
// The two may be of different builds, as while a fleet is upgraded. A sender passes by a receiver's frame whose type it does not know, so
// such a frame must not matter to an old sender. A sender sends a new type of frame only to a receiver whose grant tells that it knows it.
const HeaderBytes = 16

// ChunkBytes is the payload of every data frame but a member's last one, so the place of any byte in a segment can be
// computed. 256 KiB is where coalesced writes stop getting cheaper (measured; docs/design/measured.md).
const ChunkBytes = 256 << 10

// Chunks is how many chunks so many bytes are.
func Chunks(bytes int64) int64 { return (bytes + ChunkBytes - 1) / ChunkBytes }

// Protocol is the ALPN name of the framed stream. The number rises when an old peer could not understand a new one.
const Protocol = "lifeboat-blocks/1"

// FrameType says what a frame is.
type FrameType uint8

const (
	FrameHello    FrameType = 1  // sender's first word
	FrameGrant    FrameType = 2  // receiver: go on, there is this much room
	FrameRefuse   FrameType = 3  // receiver: not now, and why; the stream ends
	FrameOpen     FrameType = 4  // a block begins
	FrameData     FrameType = 5  // a piece of it
	FrameClose    FrameType = 6  // it is complete, and this is its sum
	FrameAbort    FrameType = 7  // it changed under the sender's hands: forget it
	FrameReceipts FrameType = 8  // receiver: these are durable, those are not and why; or none, and it is at work
	FrameAgain    FrameType = 9  // as open, of a block that another stream broke off in: how much of it is there?
	FrameHave     FrameType = 10 // receiver: so much is, and the data go on behind it
	FrameAlive    FrameType = 11 // receiver: it is there, whatever its disks do (AliveEvery)
)

// MaxPayload bounds what is read before memory is taken for it.
var MaxPayload = [...]int{
	FrameHello:    8 << 10,
	FrameGrant:    32 << 10,
	FrameRefuse:   8 << 10,
	FrameOpen:     12 << 10, // an id of 4 KiB, a name as long, and the other fields
	FrameData:     ChunkBytes,
	FrameClose:    64,
	FrameAbort:    4 << 10,
	FrameReceipts: 64 << 10,
	FrameAgain:    12 << 10,
	FrameHave:     32,
	FrameAlive:    0,
}

var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

var ErrCorrupt = errors.New("checksum does not match")

// PutHeader fills h for a payload whose own CRC-32C is sum.
func PutHeader(h []byte, t FrameType, transfer uint32, length int, sum uint32) {
	h[0], h[1], h[2], h[3] = byte(t), 0, 0, 0
	binary.BigEndian.PutUint32(h[4:], uint32(length))
	binary.BigEndian.PutUint32(h[8:], transfer)
	binary.BigEndian.PutUint32(h[12:], crc32.Update(sum, Castagnoli, h[:12]))
}

// AppendFrame appends a whole frame to b.
func AppendFrame(b []byte, t FrameType, transfer uint32, payload []byte) []byte {
	at := len(b)
	b = append(append(b, make([]byte, HeaderBytes)...), payload...)
	PutHeader(b[at:at+HeaderBytes], t, transfer, len(payload), crc32.Checksum(payload, Castagnoli))
	return b
}

// Frame is one frame as read; raw is header and payload and, like payload, is valid until the next read.
type Frame struct {
	Type     FrameType
	Transfer uint32
	Sum      uint32 // CRC-32C of the payload alone
	Raw      []byte
	Payload  []byte
}

// Reader reads and verifies frames. It hands each one out where it lies in the buffer, so that small frames that come at once are
// not copied once more. Its buffer is all the memory that it ever takes.
type Reader struct {
	r       io.Reader
	largest int
	newer   bool // frames of types that are not known are passed by
	buf     []byte
	at, end int // in buf, of what has come and was not handed out
}

// readAhead is how much is read beyond a frame, if it is there: a record of TLS, or what a file gives for a system call.
const readAhead = 32 << 10

// sumStep is how much of a large frame is waited for, and summed while the nearest cache still has it. A small one is summed at
// once: CRC-32C is several times slower in parts of less than a KiB.
const sumStep = 16 << 10

// IsFrame reports whether a header and a payload are a frame of that type, as it was written.
func IsFrame(typ FrameType, header, payload []byte) bool {
	sum := crc32.Update(crc32.Checksum(payload, Castagnoli), Castagnoli, header[:12])
	return FrameType(header[0]) == typ && binary.BigEndian.Uint32(header[4:]) == uint32(len(payload)) && sum == binary.BigEndian.Uint32(header[12:])
}

// NewReader makes a reader that refuses payloads larger than largest.
func NewReader(r io.Reader, largest int) *Reader {
	return &Reader{r: r, largest: largest, buf: make([]byte, HeaderBytes+largest+min(largest, readAhead))}
}

// NewReplies makes a reader of what a receiver says. The receiver may be of a newer build: types that are not known are passed by.
func NewReplies(r io.Reader) *Reader {
	fr := NewReader(r, MaxPayload[FrameReceipts])
	fr.newer = true
	return fr
}

// Reset goes on with another reader. What was read ahead is forgotten.
func (fr *Reader) Reset(r io.Reader) { fr.r, fr.at, fr.end = r, 0, 0 }

// buffered is how much has come and was not handed out.
func (fr *Reader) buffered() int { return fr.end - fr.at }

// Next returns io.EOF only between frames; a stream cut inside one is io.ErrUnexpectedEOF.
func (fr *Reader) Next() (Frame, error) {
	for {
		if f, err := fr.next(); err != nil || int(f.Type) < len(MaxPayload) {
			return f, err
		}
	}
}

func (fr *Reader) next() (Frame, error) {
	if err := fr.come(HeaderBytes, HeaderBytes); err != nil {
		return Frame{}, err
	}
	h := fr.buf[fr.at : fr.at+HeaderBytes]
	t := FrameType(h[0])
	length, most := binary.BigEndian.Uint32(h[4:]), fr.largest
	known := int(t) < len(MaxPayload)
	if known {
		most = min(most, MaxPayload[t])
	}
	switch {
	case t == 0 || !known && !fr.newer:
		return Frame{}, fmt.Errorf("frame of unknown type %d", t)
	case h[1] != 0 || h[2] != 0 || h[3] != 0:
		return Frame{}, fmt.Errorf("frame of type %d: reserved bytes are set", t)
	case length > uint32(most):
		return Frame{}, fmt.Errorf("frame of type %d: %d bytes, at most %d", t, length, most)
	}
	size := HeaderBytes + int(length)
	sum := uint32(0)
	for summed := HeaderBytes; summed < size; {
		if err := fr.come(min(summed+sumStep, size), size); err != nil {
			return Frame{}, err
		}
		upTo := min(fr.buffered(), size)
		sum = crc32.Update(sum, Castagnoli, fr.buf[fr.at+summed:fr.at+upTo])
		summed = upTo
	}
	raw := fr.buf[fr.at : fr.at+size : fr.at+size]
	fr.at += size
	if crc32.Update(sum, Castagnoli, raw[:12]) != binary.BigEndian.Uint32(raw[12:]) {
		return Frame{}, fmt.Errorf("frame of type %d, %d bytes: %w", t, length, ErrCorrupt)
	}
	return Frame{Type: t, Transfer: binary.BigEndian.Uint32(raw[8:]), Sum: sum, Raw: raw, Payload: raw[HeaderBytes:]}, nil
}

// come returns once so many bytes of a frame of that size have come. What there is goes to the front of the buffer before
// more is read: there the whole frame has room.
func (fr *Reader) come(bytes, size int) error {
	for fr.buffered() < bytes {
		if fr.at > 0 {
			fr.at, fr.end = 0, copy(fr.buf, fr.buf[fr.at:fr.end])
		}
		n, err := fr.r.Read(fr.buf[fr.end:min(size+readAhead, len(fr.buf))])
		fr.end += n
		switch {
		case n > 0 || err == nil: // an error comes again
		case errors.Is(err, io.EOF) && fr.buffered() > 0:
			return io.ErrUnexpectedEOF
		default:
			return err
		}
	}
	return nil
}

// Sum identifies the content of a block: SHA-256, cut to 16 bytes, over each member's size and the CRC-32C of each of
// its chunks. It is a name for bytes that were already checked chunk by chunk, and costs next to nothing.
type Sum [16]byte

// Summer computes the Sum of a block from its members and chunks, as they come, in order.
type Summer struct {
	h   hash.Hash
	buf *[sha256.Size]byte // what is hashed or comes out: on the stack it would be one allocation a chunk
}

// NewSummer returns a Summer for one block after the other: Reset lies between them.
func NewSummer() Summer { return Summer{sha256.New(), new([sha256.Size]byte)} }

// Reset begins another block.
func (s Summer) Reset() { s.h.Reset() }

// Member says that a member of so many bytes begins.
func (s Summer) Member(size int64) {
	binary.BigEndian.PutUint64(s.buf[:], uint64(size))
	s.h.Write(s.buf[:8])
}

// Chunk takes the CRC-32C of the member's next chunk.
func (s Summer) Chunk(crc uint32) {
	binary.BigEndian.PutUint32(s.buf[:], crc)
	s.h.Write(s.buf[:4])
}

// Total is the sum of what came.
func (s Summer) Total() (sum Sum) {
	copy(sum[:], s.h.Sum(s.buf[:0]))
	return sum
}
