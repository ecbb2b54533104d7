package migration

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
// The payload comes first in the checksum so that its own CRC-32C falls out on the way: the list of those is what a
// block's Sum is made of, whatever stream it came by.
//
//	sender   -> receiver   hello  ((open | again) data* (close | abort))*
//	receiver -> sender     grant | refuse,  then receipts, and have for each again
const headerBytes = 16

// ChunkBytes is the payload of every data frame but a member's last one, so the place of any byte in a segment can be
// computed. 256 KiB is where coalesced writes stop getting cheaper (measured; docs/design/measured.md).
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
	frameReceipts frameType = 8 // receiver: these are durable, those are not and why; or none, and it is at work
	// Where both said in hello and grant that they know of it:
	frameAgain frameType = 9  // as open, of a block that another stream broke off in: how much of it is there?
	frameHave  frameType = 10 // receiver: so much is, and the data go on behind it
)

// maxPayload bounds what is read before memory is taken for it.
var maxPayload = [...]int{
	frameHello:    8 << 10,
	frameGrant:    32 << 10,
	frameRefuse:   8 << 10,
	frameOpen:     32 << 10,
	frameData:     ChunkBytes,
	frameClose:    64,
	frameAbort:    4 << 10,
	frameReceipts: 64 << 10,
	frameAgain:    32 << 10,
	frameHave:     32,
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
	at := len(b)
	b = append(append(b, make([]byte, headerBytes)...), payload...)
	putHeader(b[at:at+headerBytes], t, transfer, len(payload), crc32.Checksum(payload, castagnoli))
	return b
}

// frame is one frame as read; raw is header and payload and, like payload, is valid until the next read.
type frame struct {
	typ      frameType
	transfer uint32
	sum      uint32 // CRC-32C of the payload alone
	raw      []byte
	payload  []byte
}

// frameReader reads and verifies frames, and hands each out where it came to lie: what comes of small ones at once is not
// copied once more. Its buffer is all the memory that it ever takes.
type frameReader struct {
	r       io.Reader
	largest int
	buf     []byte
	at, end int // of what has come and was not handed out
}

// readAhead is how much is read behind a frame, if it is there: a record of TLS, or what a file gives for a system call.
const readAhead = 32 << 10

// sumStep is how much of a large frame is waited for, and summed while the nearest cache still has it. A small one is summed at
// once: CRC-32C is several times slower in parts of less than a KiB.
const sumStep = 16 << 10

// isFrame reports whether a header and a payload are a frame of that type, as it was written.
func isFrame(typ frameType, header, payload []byte) bool {
	sum := crc32.Update(crc32.Checksum(payload, castagnoli), castagnoli, header[:12])
	return frameType(header[0]) == typ && binary.BigEndian.Uint32(header[4:]) == uint32(len(payload)) && sum == binary.BigEndian.Uint32(header[12:])
}

// newFrameReader makes a reader that refuses payloads larger than largest.
func newFrameReader(r io.Reader, largest int) *frameReader {
	return &frameReader{r: r, largest: largest, buf: make([]byte, headerBytes+largest+min(largest, readAhead))}
}

// reset goes on with another reader. What was read ahead is forgotten.
func (fr *frameReader) reset(r io.Reader) { fr.r, fr.at, fr.end = r, 0, 0 }

// buffered is how much has come and was not handed out.
func (fr *frameReader) buffered() int { return fr.end - fr.at }

// next returns io.EOF only between frames; a stream cut inside one is io.ErrUnexpectedEOF.
func (fr *frameReader) next() (frame, error) {
	if err := fr.come(headerBytes, headerBytes); err != nil {
		return frame{}, err
	}
	h := fr.buf[fr.at : fr.at+headerBytes]
	t := frameType(h[0])
	length := binary.BigEndian.Uint32(h[4:])
	switch {
	case t == 0 || int(t) >= len(maxPayload):
		return frame{}, fmt.Errorf("frame of unknown type %d", t)
	case h[1] != 0 || h[2] != 0 || h[3] != 0:
		return frame{}, fmt.Errorf("frame of type %d: reserved bytes are set", t)
	case length > uint32(min(maxPayload[t], fr.largest)):
		return frame{}, fmt.Errorf("frame of type %d: %d bytes, at most %d", t, length, min(maxPayload[t], fr.largest))
	}
	size := headerBytes + int(length)
	sum := uint32(0)
	for summed := headerBytes; summed < size; {
		if err := fr.come(min(summed+sumStep, size), size); err != nil {
			return frame{}, err
		}
		upTo := min(fr.buffered(), size)
		sum = crc32.Update(sum, castagnoli, fr.buf[fr.at+summed:fr.at+upTo])
		summed = upTo
	}
	raw := fr.buf[fr.at : fr.at+size : fr.at+size]
	fr.at += size
	if crc32.Update(sum, castagnoli, raw[:12]) != binary.BigEndian.Uint32(raw[12:]) {
		return frame{}, fmt.Errorf("frame of type %d, %d bytes: %w", t, length, errCorrupt)
	}
	return frame{typ: t, transfer: binary.BigEndian.Uint32(raw[8:]), sum: sum, raw: raw, payload: raw[headerBytes:]}, nil
}

// come returns once so many bytes of a frame of that size have come. What there is goes to the front of the buffer before
// more is read: there the whole frame has room.
func (fr *frameReader) come(bytes, size int) error {
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

type summer struct {
	h   hash.Hash
	buf *[sha256.Size]byte // what is hashed or comes out: on the stack it would be one allocation a chunk
}

func newSummer() summer { return summer{sha256.New(), new([sha256.Size]byte)} }

func (s summer) reset() { s.h.Reset() }

func (s summer) member(size int64) {
	binary.BigEndian.PutUint64(s.buf[:], uint64(size))
	s.h.Write(s.buf[:8])
}

func (s summer) chunk(crc uint32) {
	binary.BigEndian.PutUint32(s.buf[:], crc)
	s.h.Write(s.buf[:4])
}

func (s summer) sum() (sum Sum) {
	copy(sum[:], s.h.Sum(s.buf[:0]))
	return sum
}
