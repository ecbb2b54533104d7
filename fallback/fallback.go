// Package fallback is storage outside of the fleet for what no peer takes: a bucket that speaks S3, or a mounted directory.
//
// It keeps contents under names, each whole or not there, and knows nothing of blocks. What is put under which name, and what
// vouches for the bytes, is decided in package migration/lastresort, whose interface Objects both Bucket and Directory implement;
// in which order, in package migration. Nothing here waits for ever: a storage that is silent for long is an error, and every call
// ends soon after its context does. Values may be used from any goroutine.
package fallback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"time"
)

const (
	// silence is how long a storage may neither take bytes nor answer: a third of the shortest notice. A bucket that is known to be slow
	// may take up to longestWork.
	silence = 10 * time.Second
	// answerGrace is how long after its context has ended a request that was sent whole may still be answered. It is less than
	// what a drain waits for its peers' last receipts.
	answerGrace = 1500 * time.Millisecond
	// mostLeftBehind bounds the calls that a directory may hold up, beside the uploads, before nothing more is asked of it.
	mostLeftBehind = 64
)

var errSilent = fmt.Errorf("silent for %v: it may hang", silence)

// Storage is what Open returns.
type Storage interface {
	Put(ctx context.Context, name string, bytes int64, content io.Reader, fresh bool) error
	Get(ctx context.Context, name string, from int64, into []byte) (int, error)
	Stat(ctx context.Context, name string) (bytes int64, tag string, at time.Time, err error)
}

// Dialer opens connections to a bucket.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Open makes the storage that the settings name; nil when they name none. It asks nobody anything.
func (s Settings) Open(ctx context.Context, dial Dialer) (Storage, error) {
	switch {
	case s.Dir != "":
		return NewDirectory(s.Dir), nil
	case s.S3.Bucket != "":
		return OpenBucket(ctx, s.S3, dial)
	}
	return nil, nil
}

// probe is what Check puts. Every agent puts the same.
const probe = "lifeboat-probe"

// Check reports whether the storage keeps and gives back now.
func Check(ctx context.Context, s Storage) error {
	const word = "lifeboat puts its blocks here when no peer takes them\n"
	// First the question that is answered soonest, which finds out a storage that hangs. By Get, not Stat: a bucket's answer to Stat
	// does not say why it refuses.
	switch _, err := s.Get(ctx, probe+"-that-is-not-there", 0, make([]byte, 1)); {
	case err == nil, errors.Is(err, io.EOF):
		return errors.New("it has " + probe + "-that-is-not-there, which nobody puts: remove it, or, if it says so of everything, use another storage")
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("ask for what is not there: %w", err)
	}
	if err := s.Put(ctx, probe, int64(len(word)), strings.NewReader(word), false); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	// The records of blocks are put with this condition: a server that does not know it would take no block.
	if err := s.Put(ctx, probe, int64(len(word)), strings.NewReader(word), true); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write only where nothing is (If-None-Match): %w", err)
	}
	got := make([]byte, len(word))
	if _, err := s.Get(ctx, probe, 0, got); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if string(got) != word {
		return errors.New("it gives back other bytes than it was given")
	}
	return nil
}

// lingering returns a context that ends that long after ctx does.
func lingering(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	undo := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return late, func() { undo(); cancel() }
}

// readPart fills part from content; with last, content must end there.
func readPart(content io.Reader, part []byte, last bool) error {
	if _, err := io.ReadFull(content, part); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if !last {
		return nil
	}
	var more [1]byte
	switch n, err := io.ReadFull(content, more[:]); {
	case n > 0:
		return errors.New("the content is longer than it should be")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}
