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

// frameReader reads and verifies frames. Its buffer is one frame long and all the memory that it ever takes.
type frameReader struct {
	r   io.Reader
	buf []byte
}

// newFrameReader makes a reader that refuses payloads larger than largest.
func newFrameReader(r io.Reader, largest int) *frameReader {
	return &frameReader{r: r, buf: make([]byte, headerBytes+largest)}
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
	case length > uint32(min(maxPayload[t], len(fr.buf)-headerBytes)):
		return frame{}, fmt.Errorf("frame of type %d: %d bytes, at most %d", t, length, min(maxPayload[t], len(fr.buf)-headerBytes))
	}
	raw := fr.buf[:headerBytes+int(length)]
	payload := raw[headerBytes:]
	var sum uint32
	for got := 0; got < len(payload); { // a TLS record at a time is summed while the nearest cache still has it
		n, err := fr.r.Read(payload[got:])
		sum = crc32.Update(sum, castagnoli, payload[got:got+n])
		got += n
		if err != nil && got < len(payload) {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return frame{}, err
		}
	}
	if crc32.Update(sum, castagnoli, h[:12]) != binary.BigEndian.Uint32(h[12:]) {
		return frame{}, fmt.Errorf("frame of type %d, %d bytes: %w", t, length, errCorrupt)
	}
	return frame{typ: t, transfer: binary.BigEndian.Uint32(h[8:]), sum: sum, raw: raw, payload: payload}, nil
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
