package manifest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
)

// Path is the file in dir that has the lines of an outcome.
func Path(dir string, o Outcome) string { return filepath.Join(dir, string(o)+".jsonl") }

// Entries reads the manifest of the drain kept in dir: the lost first, because that is what people look for.
func Entries(dir string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for _, o := range []Outcome{Lost, Skipped, Moved} {
			for e, err := range Read(Path(dir, o)) {
				if e.Outcome == Voided {
					continue // its drain has not ended
				}
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// Read yields the whole lines of a ledger file; a last line that a crash cut short is no entry.
func Read(p string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for line, err := range Lines(p) {
			if !yield(line.Entry, err) {
				return
			}
		}
	}
}

// Line is an entry, and where its line begins and ends in the file.
type Line struct {
	Entry
	Begin, End int64
}

// Lines yields the lines of a ledger file, but for those that do not count any more (settle).
func Lines(p string) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		for line, err := range AllLines(p) {
			if line.Outcome != Struck && !yield(line, err) {
				return
			}
		}
	}
}

// AllLines yields also the lines that do not count any more: peers may still have what they say was moved.
func AllLines(p string) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		f, err := os.Open(p)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield(Line{}, fmt.Errorf("read the manifest: %w", err))
			return
		}
		defer f.Close()
		r, end := bufio.NewReaderSize(f, 64<<10), int64(0)
		for {
			line, err := r.ReadSlice('\n')
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(Line{}, fmt.Errorf("read the manifest: %w", err))
				}
				return
			}
			begin := end
			end += int64(len(line))
			e, err := ParseLine(line)
			if err != nil {
				yield(Line{}, fmt.Errorf("read the manifest %s: %w", p, err))
				return
			}
			if !yield(Line{e, begin, end}, nil) {
				return
			}
		}
	}
}
