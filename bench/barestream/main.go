// Command barestream is the floor of the benchmark: the least program that does what the ratios compare, so that they show
// how much of the time is the product's and how much the machine's. It sends the files of an index over a few connections
// with mutual TLS 1.3, each frame with a CRC-32C; the sink writes one segment a connection, verifies, syncs ten times a
// second and then acknowledges. There is no scan of the source, no order, no room, no catalog, no account, no way back to
// a file.
//
//	barestream -listen ADDR -into DIR -ca F -cert F -key F                until SIGTERM
//	barestream -to ADDR -from DIR -index F -ca F -cert F -key F           until the last byte is acknowledged
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"os/signal"
	"syscall"

	"github.com/lifeboat/lifeboat/certs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "barestream: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	listen, into := flag.String("listen", "", "take files at `ADDR`"), flag.String("into", "", "put their segments into `DIR`")
	to, from := flag.String("to", "", "send files to `ADDR`"), flag.String("from", "", "the files of `DIR`")
	index := flag.String("index", "", "`FILE` with a size and a path a line, those of a directory together")
	ca, cert, key := flag.String("ca", "", "`FILE`"), flag.String("cert", "", "`FILE`"), flag.String("key", "", "`FILE`")
	flag.Parse()
	id, err := certs.Load(*ca, *cert, *key)
	switch {
	case err != nil:
		return err
	case *listen != "":
		return take(ctx, *listen, *into, id.Server([]string{protocol}, certs.RoleNode))
	default:
		return send(ctx, *to, *from, *index, id.Client([]string{protocol}, certs.Name{Role: certs.RoleNode}))
	}
}

const protocol = "barestream/1"

// A frame is a header and a piece of a file:
//
//	0  last     2 bytes: 1 where the file ends
//	2  name     2 bytes: how long its path is, which goes before the piece; 0 but in a file's first frame
//	4  length   4 bytes, of path and piece
//	8  piece    4 bytes, from 0
//	12 crc      4 bytes: CRC-32C of path and piece followed by bytes 0..11 of the header
const headerBytes = 16

// connections: four were no faster than two on two processors.
const connections = 2

// gather is how many bytes are written to a connection at once: as many full TLS records as fit, encrypted, into a write
// of 256 KiB.
const gather = 15 << 14

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// putHeader fills in the header of a frame.
func putHeader(frame []byte, last bool, path int, piece uint32) {
	h, body := frame[:headerBytes], frame[headerBytes:]
	binary.BigEndian.PutUint16(h, 0)
	if last {
		h[1] = 1
	}
	binary.BigEndian.PutUint16(h[2:], uint16(path))
	binary.BigEndian.PutUint32(h[4:], uint32(len(body)))
	binary.BigEndian.PutUint32(h[8:], piece)
	binary.BigEndian.PutUint32(h[12:], sum(h, crc32.Checksum(body, castagnoli)))
}

// sum completes the CRC-32C of the bytes that follow the header with the header itself.
func sum(header []byte, body uint32) uint32 { return crc32.Update(body, castagnoli, header[:12]) }

var errCorrupt = errors.New("checksum does not match")

// verifier checks a stream of frames, wherever its buffers cut it, and does not change it.
type verifier struct {
	header [headerBytes]byte
	have   int // bytes of the header that have come
	left   int // bytes of path and piece that are still to come
	sum    uint32
	sound  int64 // bytes of whole frames
}

func (v *verifier) take(p []byte) error {
	for len(p) > 0 {
		var n int
		if v.have < headerBytes {
			n = copy(v.header[v.have:], p)
			if v.have += n; v.have == headerBytes {
				v.left, v.sum = int(binary.BigEndian.Uint32(v.header[4:])), 0
			}
		} else {
			n = min(v.left, len(p))
			v.sum = crc32.Update(v.sum, castagnoli, p[:n])
			v.left -= n
		}
		p = p[n:]
		if v.have < headerBytes || v.left > 0 {
			continue
		}
		if sum(v.header[:], v.sum) != binary.BigEndian.Uint32(v.header[12:]) {
			return errCorrupt
		}
		v.sound += headerBytes + int64(binary.BigEndian.Uint32(v.header[4:]))
		v.have = 0
	}
	return nil
}
