package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/lifeboat/lifeboat/migration/wire"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// index hands out the files, some at a time.
type index struct {
	mu   sync.Mutex
	rest []byte
}

const batchBytes = 512 << 10

// some returns the lines of the next files, until their bytes reach batchBytes.
func (x *index) some() []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for total := 0; n < len(x.rest) && total < batchBytes; {
		line, _, _ := bytes.Cut(x.rest[n:], []byte{'\n'})
		size, _, _ := bytes.Cut(line, []byte{' '})
		of, _ := strconv.Atoi(string(size)) // a bad line is an error when its file is opened
		total += of
		n = min(n+len(line)+1, len(x.rest))
	}
	lines := x.rest[:n]
	x.rest = x.rest[n:]
	return lines
}

func send(ctx context.Context, addr, dir, file string, cfg *tls.Config) error {
	lines, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	x := &index{rest: lines}
	g, ctx := errgroup.WithContext(ctx)
	for range connections {
		g.Go(func() error { return sendSome(ctx, addr, dir, x, cfg) })
	}
	return g.Wait()
}

// sender is a connection, and the frames that are to be written to it next.
type sender struct {
	conn *wire.Conn
	buf  []byte
	sent int64
	dir  string // the source directory
	in   string // the directory below it that is open as inFD
	inFD int
}

func sendSome(ctx context.Context, addr, dir string, x *index, cfg *tls.Config) error {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	s := &sender{conn: wire.Client(raw, cfg), buf: make([]byte, 0, gather), dir: dir, inFD: -1}
	defer func() { _ = unix.Close(s.inFD) }()
	if err := s.conn.HandshakeContext(ctx); err != nil {
		return err
	}
	var g errgroup.Group
	var acked int64
	g.Go(func() error {
		var ack [8]byte
		for {
			if _, err := io.ReadFull(s.conn, ack[:]); err != nil {
				return err
			}
			acked = int64(binary.BigEndian.Uint64(ack[:]))
		}
	})
	for lines := x.some(); err == nil && len(lines) > 0; lines = x.some() {
		for line := range bytes.Lines(lines) {
			if err = s.file(bytes.TrimSuffix(line, []byte{'\n'})); err != nil {
				break
			}
		}
	}
	if err == nil {
		err = s.flush()
	}
	if err != nil {
		raw.Close()
		return errors.Join(err, g.Wait())
	}
	if err := s.conn.CloseWrite(); err != nil {
		return err
	}
	if err := g.Wait(); !errors.Is(err, io.EOF) || acked != s.sent {
		return fmt.Errorf("%d of %d bytes are acknowledged: %w", acked, s.sent, err)
	}
	return nil
}

// file reads a file to its end, straight into frames.
func (s *sender) file(line []byte) error {
	digits, path, _ := bytes.Cut(line, []byte{' '})
	left, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	fd, err := s.open(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for piece := uint32(0); piece == 0 || left > 0; piece++ {
		if cap(s.buf)-len(s.buf) < headerBytes+len(path)+int(min(left, 4<<10)) { // no tiny pieces
			if err := s.flush(); err != nil {
				return err
			}
		}
		at := len(s.buf)
		s.buf = append(s.buf[:at+headerBytes], path...)
		n := int(min(left, int64(cap(s.buf)-len(s.buf))))
		if err := readFull(fd, s.buf[len(s.buf):len(s.buf)+n]); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		left -= int64(n)
		s.buf = s.buf[:len(s.buf)+n]
		putHeader(s.buf[at:], left == 0, len(path), piece)
		path = nil
	}
	return nil
}

// open opens a file relative to its directory, which stays open for the next files of that directory.
func (s *sender) open(path []byte) (int, error) {
	slash := bytes.LastIndexByte(path, '/')
	if in := path[:max(slash, 0)]; s.inFD < 0 || string(in) != s.in {
		_ = unix.Close(s.inFD)
		var err error
		s.in = string(in)
		if s.inFD, err = unix.Open(filepath.Join(s.dir, s.in), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return -1, &os.PathError{Op: "open", Path: s.in, Err: err}
		}
	}
	fd, err := unix.Openat(s.inFD, string(path[slash+1:]), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, &os.PathError{Op: "openat", Path: string(path), Err: err}
	}
	return fd, nil
}

func readFull(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Read(fd, p)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return os.NewSyscallError("read", err)
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		p = p[max(n, 0):]
	}
	return nil
}

func (s *sender) flush() error {
	n, err := s.conn.Write(s.buf)
	s.sent += int64(n)
	s.buf = s.buf[:0]
	return err
}
