// Package storagetest is what every storage of package fallback does, as one table: for directories, for a fake of S3 that
// injects faults, and for a real server of it. So the fake cannot drift from the server.
package storagetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"testing"
	"testing/iotest"
	"time"

	"github.com/lifeboat/lifeboat/fallback"
)

// part is where a bucket takes a content in several parts.
const part = 5 << 20

// ContentOf is bytes that depend on the name alone.
func ContentOf(name string, size int) []byte {
	b := make([]byte, size)
	rand.NewChaCha8(sha256.Sum256([]byte(name))).Read(b)
	return b
}

func put(t *testing.T, s fallback.Storage, name string, content []byte) {
	t.Helper()
	if err := s.Put(t.Context(), name, int64(len(content)), bytes.NewReader(content), false); err != nil {
		t.Fatalf("put %s: %v", name, err)
	}
}

func wantContent(t *testing.T, s fallback.Storage, name string, want []byte) {
	t.Helper()
	got := make([]byte, len(want)+1)
	n, err := s.Get(t.Context(), name, 0, got)
	if !errors.Is(err, io.EOF) || !bytes.Equal(got[:n], want) {
		t.Errorf("get %s: got %d bytes and %v, want the %d that were put and io.EOF", name, n, err, len(want))
	}
}

// Run tries a storage that is empty.
func Run(t *testing.T, s fallback.Storage) {
	t.Run("contents of all sizes", func(t *testing.T) {
		for name, size := range map[string]int{"a/empty": 0, "a/one": 1, "a/b/c/small": 70_000, "a/part": part, "a/large": 2*part + 17} {
			content := ContentOf(name, size)
			put(t, s, name, content)
			wantContent(t, s, name, content)
			bytes, tag, at, err := s.Stat(t.Context(), name)
			if err != nil || bytes != int64(size) || tag == "" || time.Since(at).Abs() > time.Minute {
				t.Errorf("stat %s: got %d bytes, tag %q, at %v, %v", name, bytes, tag, at, err)
			}
		}
	})
	t.Run("ranges", func(t *testing.T) {
		content := ContentOf("ranges", 1000)
		put(t, s, "ranges", content)
		for _, c := range []struct{ from, len, want int }{{0, 10, 10}, {990, 10, 10}, {990, 20, 10}, {999, 1, 1}, {1000, 1, 0}, {5000, 10, 0}} {
			got := make([]byte, c.len)
			n, err := s.Get(t.Context(), "ranges", int64(c.from), got)
			if n != c.want || n > 0 && !bytes.Equal(got[:n], content[c.from:][:n]) || (n < c.len) != errors.Is(err, io.EOF) {
				t.Errorf("get %d bytes from %d: got %d, %v, want %d", c.len, c.from, n, err, c.want)
			}
		}
	})
	t.Run("what is not there", func(t *testing.T) {
		if _, err := s.Get(t.Context(), "nothing/here", 0, make([]byte, 10)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("get: got %v, want fs.ErrNotExist", err)
		}
		if _, _, _, err := s.Stat(t.Context(), "nothing/here"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("stat: got %v, want fs.ErrNotExist", err)
		}
	})
	t.Run("a name that is taken", func(t *testing.T) {
		for _, size := range []int{6, 2*part + 17} { // at once, and in parts
			first, second, third := ContentOf("first", size), ContentOf("second", size), ContentOf("third", size)
			name, free := fmt.Sprint("taken-", size), fmt.Sprint("free-", size)
			put(t, s, name, first)
			if err := s.Put(t.Context(), name, int64(size), bytes.NewReader(second), true); !errors.Is(err, fs.ErrExist) {
				t.Errorf("put %d bytes anew: got %v, want fs.ErrExist", size, err)
			}
			wantContent(t, s, name, first)
			put(t, s, name, third)
			wantContent(t, s, name, third)
			if err := s.Put(t.Context(), free, int64(size), bytes.NewReader(first), true); err != nil {
				t.Errorf("put %d bytes under a new name: %v", size, err)
			}
			wantContent(t, s, free, first)
		}
	})
	t.Run("a content that fails leaves what was there", func(t *testing.T) {
		broken := errors.New("the disk is gone")
		for _, size := range []int{100, 2*part + 5} {
			put(t, s, "kept", []byte("old"))
			half := io.MultiReader(bytes.NewReader(make([]byte, size/2)), iotest.ErrReader(broken))
			if err := s.Put(t.Context(), "kept", int64(size), half, false); !errors.Is(err, broken) {
				t.Errorf("%d bytes: got %v, want the content's error", size, err)
			}
			atEnd := io.MultiReader(bytes.NewReader(make([]byte, size)), iotest.ErrReader(broken))
			if err := s.Put(t.Context(), "kept", int64(size), atEnd, false); !errors.Is(err, broken) {
				t.Errorf("%d bytes, fails at its end: got %v, want the content's error", size, err)
			}
			if err := s.Put(t.Context(), "kept", int64(size), bytes.NewReader(make([]byte, size+1)), false); err == nil {
				t.Errorf("%d bytes: one more was taken", size)
			}
			if err := s.Put(t.Context(), "kept", int64(size), bytes.NewReader(make([]byte, size-1)), false); err == nil {
				t.Errorf("%d bytes: one less was taken", size)
			}
			wantContent(t, s, "kept", []byte("old"))
		}
	})
	t.Run("nothing is sent once the context has ended", func(t *testing.T) {
		put(t, s, "late", []byte("old"))
		for _, size := range []int{100, 2*part + 5} {
			ctx, cancel := context.WithCancel(t.Context())
			ends := io.MultiReader(bytes.NewReader(make([]byte, size/2)), readFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }))
			began := time.Now()
			if err := s.Put(ctx, "late", int64(size), io.LimitReader(ends, int64(size)), false); !errors.Is(err, context.Canceled) {
				t.Errorf("%d bytes: got %v, want context.Canceled", size, err)
			}
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("%d bytes: took %v to see it", size, took)
			}
		}
		wantContent(t, s, "late", []byte("old"))
	})
	t.Run("many at once", func(t *testing.T) {
		done := make(chan error)
		for range 16 {
			go func() {
				done <- s.Put(t.Context(), "many/x/y", 50_000, bytes.NewReader(ContentOf("many", 50_000)), false)
			}()
		}
		for range 16 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		wantContent(t, s, "many/x/y", ContentOf("many", 50_000))
	})
	t.Run("check", func(t *testing.T) {
		if err := fallback.Check(t.Context(), s); err != nil {
			t.Error(err)
		}
	})
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
