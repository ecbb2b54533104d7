package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// target is where get writes a block: standard output, a file, or a directory, in which the file is called as the last part of the
// block's id. A file appears whole or not at all, and no id names a file outside of dir.
type target struct {
	stream io.Writer
	dir    *os.Root
	name   string // of the stream, or of the file in dir; empty: the last part of the block's id
	opened *os.File
}

func newTarget(into string, stdout io.Writer) (*target, error) {
	if into == "" || into == "-" {
		return &target{stream: stdout, name: "the standard output"}, nil
	}
	info, err := os.Stat(into)
	switch {
	case err == nil && info.IsDir():
		return rooted(into, "")
	case err == nil && !info.Mode().IsRegular(): // a pipe or a device is written to, not replaced
		f, err := os.OpenFile(into, os.O_WRONLY, 0)
		if err != nil {
			return nil, fmt.Errorf("get: %w", err)
		}
		return &target{stream: f, opened: f, name: into}, nil
	case err == nil:
		if into, err = filepath.EvalSymlinks(into); err != nil { // a link stays, and the file that it names is replaced
			return nil, fmt.Errorf("get: %w", err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("get: %w", err)
	}
	dir, name := filepath.Split(into)
	if name == "" {
		return nil, usagef("get: -o %s: there is no such directory", into)
	}
	if dir == "" {
		dir = "."
	}
	return rooted(dir, name)
}

func rooted(dir, name string) (*target, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	return &target{dir: root, name: name}, nil
}

func (t *target) Close() error {
	switch {
	case t.dir != nil:
		return t.dir.Close()
	case t.opened != nil:
		return t.opened.Close()
	}
	return nil
}

// write writes a block to the target. length is the size that the holder announced; negative: it announced none.
func (t *target) write(id string, body io.Reader, length int64) error {
	if t.stream != nil {
		n, err := io.Copy(here{t.stream, t.name}, body)
		if err = whole(n, length, err); err != nil && n > 0 {
			return &finalError{err} // part of it is written, so another holder cannot start again
		}
		return err
	}
	name := t.name
	if name == "" {
		name = path.Base(id)
	}
	if !filepath.IsLocal(name) || name == "." {
		return &finalError{fmt.Errorf("%q is no name for a file", name)}
	}
	return t.writeFile(name, body, length)
}

func (t *target) writeFile(name string, body io.Reader, length int64) (err error) {
	temp := "." + name + "." + rand.Text()[:8]
	f, err := t.dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) // less the umask, as any new file
	if err != nil {
		return &finalError{err}
	}
	defer func() {
		if err != nil {
			_ = f.Close() // the first error counts
			_ = t.dir.Remove(temp)
		}
	}()
	into := filepath.Join(t.dir.Name(), name)
	n, err := io.Copy(here{f, into}, body)
	if err := whole(n, length, err); err != nil {
		return err
	}
	if err := cmp.Or(f.Sync(), f.Close()); err != nil {
		return refusedHere(into, err)
	}
	if err := t.dir.Rename(temp, name); err != nil {
		return &finalError{err}
	}
	d, err := t.dir.Open(".")
	if err != nil {
		return &finalError{err}
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return &finalError{err}
	}
	return nil
}

// here marks write errors as final: if this machine's disk is full, no other holder can help.
type here struct {
	io.Writer
	name string
}

func (h here) Write(p []byte) (int, error) {
	n, err := h.Writer.Write(p)
	if err != nil {
		err = refusedHere(h.name, err)
	}
	return n, err
}

// refusedHere makes a final error of a write error, with the name of the target in place of that of the temporary file.
func refusedHere(name string, err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return &finalError{fmt.Errorf("write %s: %w", name, err)}
}

func whole(n, length int64, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("after %d bytes: %w", n, err)
	case length >= 0 && n != length:
		return fmt.Errorf("got %d bytes, want %d", n, length)
	}
	return nil
}
