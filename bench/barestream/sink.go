package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/wire"
)

const (
	writeBytes = 512 << 10              // of a segment in one write: a multiple of the page, so that no page is written twice
	syncEvery  = 100 * time.Millisecond // all that came meanwhile is acknowledged together
)

func take(ctx context.Context, addr, dir string, cfg *tls.Config) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	for no := 0; ; no++ {
		raw, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer raw.Close()
			defer context.AfterFunc(ctx, func() { raw.Close() })()
			conn := wire.Server(raw, cfg)
			if conn.HandshakeContext(ctx) != nil {
				return // a connection that only tested whether the port is open
			}
			if err := receive(conn, filepath.Join(dir, fmt.Sprintf("%d.segment", no))); err != nil {
				fmt.Fprintf(os.Stderr, "connection %d: %v\n", no, err) // the sender misses an acknowledgement
			}
		})
	}
}

// segment is the file that takes a connection's frames as they come.
type segment struct {
	f     *os.File
	whole atomic.Int64 // bytes of whole frames that are verified and written
}

func receive(conn *wire.Conn, file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := durable.SyncDir(filepath.Dir(file)); err != nil {
		return err
	}
	s := &segment{f: f}
	ended, acked := make(chan struct{}), make(chan error, 1)
	go func() { acked <- s.acknowledge(conn, ended) }()
	err = s.write(conn)
	close(ended)
	err = errors.Join(err, <-acked)
	_ = conn.Close() // the sender may be gone: it knows all that it waited for
	return err
}

// write appends the frames to the segment until the sender has no more.
func (s *segment) write(conn io.Reader) error {
	var v verifier
	var written int64
	buf := make([]byte, 0, writeBytes)
	for {
		n, err := conn.Read(buf[len(buf):cap(buf)])
		if corrupt := v.take(buf[len(buf) : len(buf)+n]); corrupt != nil {
			return corrupt
		}
		buf = buf[:len(buf)+n]
		if len(buf) == cap(buf) || err != nil {
			n, err := s.f.Write(buf)
			if err != nil {
				return err
			}
			written += int64(n)
			s.whole.Store(min(v.sound, written))
			buf = buf[:0]
		}
		switch {
		case errors.Is(err, io.EOF) && v.have > 0:
			return io.ErrUnexpectedEOF
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// acknowledge syncs the segment again and again, and tells the sender how many bytes are verified and on the
// disk.
func (s *segment) acknowledge(conn io.Writer, ended <-chan struct{}) error {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for said, last := int64(0), false; !last; {
		select {
		case <-tick.C:
		case <-ended:
			last = true
		}
		whole := s.whole.Load()
		if whole == said {
			continue
		}
		if err := unix.Fdatasync(int(s.f.Fd())); err != nil {
			return os.NewSyscallError("fdatasync", err)
		}
		if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(whole))); err != nil {
			return err
		}
		said = whole
	}
	return nil
}
