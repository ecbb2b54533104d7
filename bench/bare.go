package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const floor = "bare stream"

// bareStream is the floor under all contenders: bench/barestream. It encrypts, checks and syncs as lifeboat does, and
// does nothing else. Even the list of the files is made before the clock starts.
type bareStream struct{ program, pki string }

func newBareStream(ctx context.Context, root, work, pki string) (*bareStream, error) {
	s := &bareStream{program: filepath.Join(work, "barestream"), pki: pki}
	return s, build(ctx, root, s.program, "./bench/barestream")
}

func (s *bareStream) name() string { return floor }

func (s *bareStream) move(ctx context.Context, from source, into string) (out outcome, err error) {
	target, at, err := site(into)
	if err != nil {
		return out, err
	}
	index := filepath.Join(into, "index")
	if err := writeIndex(index, from.dir); err != nil {
		return out, err
	}
	server, err := serving(ctx, at, filepath.Join(into, "bare.log"), s.program, append(flagsOf(s.pki, "sink"), "-listen", at, "-into", target)...)
	if err != nil {
		return out, err
	}
	began := time.Now()
	_, out.cpu, err = command(ctx, s.program, append(flagsOf(s.pki, "source"), "-to", at, "-from", from.dir, "-index", index)...)
	out.sent = time.Since(began)
	out.durable, out.told = out.sent, out.sent // the program ends with the last acknowledgement
	cpu, stopped := server.stop()
	out.cpu += cpu
	if err = errors.Join(err, stopped); err != nil {
		return out, server.trouble(err)
	}
	return out, checkSegments(target, from)
}

// writeIndex writes a line for each file: its size and its path.
func writeIndex(file, dir string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	err = filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%d %s\n", info.Size(), name)
		return err
	})
	return errors.Join(err, w.Flush())
}

// checkSegments checks that the segments of a directory are whole frames, with every file of the corpus once and nothing
// else.
func checkSegments(dir string, from source) error {
	missing := make(map[string][sha256.Size]byte, len(from.files.Files))
	for _, file := range from.files.Files {
		missing[file.Name] = file.SHA256
	}
	segments, err := filepath.Glob(filepath.Join(dir, "*.segment"))
	if err != nil {
		return err
	}
	for _, file := range segments {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		err = checkSegment(f, missing)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d files of %d are in no segment of %s", len(missing), from.files.Blocks, dir)
	}
	return nil
}

// checkSegment reads frames (described in bench/barestream) and deletes from missing each file that is whole.
func checkSegment(f io.Reader, missing map[string][sha256.Size]byte) error {
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	r := bufio.NewReaderSize(f, 1<<20)
	var (
		h     [16]byte
		body  []byte
		name  string
		whole hash.Hash = sha256.New()
		piece uint32
	)
	for {
		if _, err := io.ReadFull(r, h[:]); errors.Is(err, io.EOF) && piece == 0 {
			return nil
		} else if err != nil {
			return err
		}
		length, path := int(binary.BigEndian.Uint32(h[4:])), int(binary.BigEndian.Uint16(h[2:]))
		if length > 1<<20 || path > length || binary.BigEndian.Uint32(h[8:]) != piece || (path > 0) != (piece == 0) {
			return fmt.Errorf("a frame begins with %x, in the place of piece %d", h, piece)
		}
		body = append(body[:0], make([]byte, length)...)
		if _, err := io.ReadFull(r, body); err != nil {
			return err
		}
		if crc32.Update(crc32.Checksum(body, castagnoli), castagnoli, h[:12]) != binary.BigEndian.Uint32(h[12:]) {
			return fmt.Errorf("piece %d of %s: checksum does not match", piece, name)
		}
		if piece == 0 {
			name = string(body[:path])
			whole.Reset()
		}
		whole.Write(body[path:])
		piece++
		if binary.BigEndian.Uint16(h[:]) == 0 {
			continue
		}
		if want, ok := missing[name]; !ok || [sha256.Size]byte(whole.Sum(nil)) != want {
			return fmt.Errorf("%q is none of the files, or has other bytes, or came twice", name)
		}
		delete(missing, name)
		piece = 0
	}
}
