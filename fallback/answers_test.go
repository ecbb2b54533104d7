package fallback_test

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/pipenet"
)

// inBubble runs a story about a bucket in a bubble, where a minute takes no time.
func inBubble(t *testing.T, s fallback.S3, story func(t *testing.T, f *fakeS3, b *fallback.Bucket)) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "who")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	synctest.Test(t, func(t *testing.T) {
		f := &fakeS3{objects: map[string][]byte{}, at: map[string]time.Time{}, uploads: map[string]map[int][]byte{}}
		l := pipenet.Listen()
		srv := &http.Server{Handler: f}
		go srv.Serve(l)
		s.Bucket, s.Endpoint, s.PathStyle = "spill", "http://bucket", true
		b, err := fallback.OpenBucket(t.Context(), s, l.Dial)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			srv.Close()
			time.Sleep(time.Minute) // for the client's idle connections
		}()
		story(t, f, b)
	})
}

// thinks answers everything only after so long; 0: at once.
func thinks(f *fakeS3, takes time.Duration) {
	f.set(func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-time.After(takes):
			return false
		case <-r.Context().Done():
			return true
		}
	})
}

// ask looks for what is not there, and says how long that took.
func ask(t *testing.T, b *fallback.Bucket) (took time.Duration, err error) {
	t.Helper()
	began := time.Now()
	if _, _, _, err = b.Stat(t.Context(), "nothing"); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return time.Since(began).Truncate(time.Second), err
}

// A bucket that takes questions and answers none is found out by the first. Each question that follows waits longer, for the bucket
// may be slow. Nothing is asked twice.
func TestBucketThatHangsIsKnownByTheFirstQuestion(t *testing.T) {
	inBubble(t, fallback.S3{}, func(t *testing.T, f *fakeS3, b *fallback.Bucket) {
		thinks(f, time.Hour)
		for i, want := range []time.Duration{3 * time.Second, 6 * time.Second, 10 * time.Second, 10 * time.Second} {
			took, err := ask(t, b)
			wantError(t, err, "no answer for "+want.String())
			if n := f.count("HEAD"); took != want || n != i+1 {
				t.Errorf("question %d took %v and was asked %d times in all, want %v and once each", i+1, took, n, want)
			}
		}
		began := time.Now()
		wantError(t, fallback.Check(t.Context(), b), "no answer for 10s")
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("a check took %v, want the bound once", took)
		}
		thinks(f, 0)
		if took, err := ask(t, b); took != 0 || err != nil {
			t.Errorf("when it answers again: %v after %v", err, took)
		}
	})
}

// A bucket that is slow with each answer is used all the same, as soon as it is known to be slow.
func TestBucketThatIsSlowIsWaitedFor(t *testing.T) {
	inBubble(t, fallback.S3{}, func(t *testing.T, f *fakeS3, b *fallback.Bucket) {
		thinks(f, 5*time.Second)
		_, err := ask(t, b)
		wantError(t, err, "no answer for 3s")
		for range 3 {
			if took, err := ask(t, b); err != nil || took != 5*time.Second {
				t.Errorf("got %v after %v, want an answer after 5s", err, took)
			}
		}
		thinks(f, 9*time.Second)
		if err := tryPut(t.Context(), b, large); err != nil {
			t.Errorf("an upload of three parts, 9 s each: %v", err)
		}
		if took, err := ask(t, b); err != nil {
			t.Errorf("what was slow may become slower: %v after %v", err, took)
		}
	})
}

// While other questions are answered, it is one connection that hangs and not the bucket: the question is asked again on another.
func TestConnectionThatHangsIsNotTheBucket(t *testing.T) {
	inBubble(t, fallback.S3{}, func(t *testing.T, f *fakeS3, b *fallback.Bucket) {
		var hung atomic.Bool
		f.set(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || hung.Swap(true) {
				return false
			}
			<-r.Context().Done()
			return true
		})
		time.AfterFunc(time.Second, func() { _, _ = ask(t, b) })
		began := time.Now()
		if _, err := b.Get(t.Context(), "x", 0, make([]byte, 1)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want fs.ErrNotExist", err)
		}
		if took := time.Since(began); took < 3*time.Second || took > 5*time.Second {
			t.Errorf("took %v, want soon after 3s", took)
		}
	})
}

// An upload that moves is not cut, however slow the link.
func TestUploadThatMovesIsNotCut(t *testing.T) {
	inBubble(t, fallback.S3{}, func(t *testing.T, f *fakeS3, b *fallback.Bucket) {
		f.set(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut {
				r.Body = struct {
					io.Reader
					io.Closer
				}{slowly{r.Body}, r.Body}
			}
			return false
		})
		began := time.Now()
		if err := tryPut(t.Context(), b, 4<<20); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Minute || f.count("PUT") != 1 {
			t.Errorf("took %v and %d uploads, want one of more than a minute", took, f.count("PUT"))
		}
	})
}

// slowly takes a second for each 16 KiB.
type slowly struct{ io.Reader }

func (s slowly) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p[:min(len(p), 16<<10)])
	time.Sleep(time.Duration(n) * time.Second / (16 << 10))
	return n, err
}

// A connection that falls silent in the middle of an upload costs one part, and no other has to be sent again.
func TestConnectionThatFallsSilentDuringAnUpload(t *testing.T) {
	inBubble(t, fallback.S3{}, func(t *testing.T, f *fakeS3, b *fallback.Bucket) {
		var hung atomic.Bool
		f.set(func(_ http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.RawQuery, "partNumber=2&") || hung.Swap(true) {
				return false
			}
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return true
		})
		if err := tryPut(t.Context(), b, large); err != nil || f.count("partNumber=1&") != 1 || f.count("partNumber=2&") != 2 {
			t.Errorf("got %v, the parts were sent %d and %d times, want 1 and 2", err, f.count("partNumber=1&"), f.count("partNumber=2&"))
		}
	})
}

// A bucket that falls silent during an upload costs, once, as long as a connection may be silent, and a question: whether it took the
// part or not, and even when it answered others for a while.
func TestBucketThatFallsSilentDuringAnUpload(t *testing.T) {
	for _, takes := range []bool{true, false} {
		inBubble(t, fallback.S3{}, func(t *testing.T, f *fakeS3, b *fallback.Bucket) {
			began := time.Now()
			f.set(func(_ http.ResponseWriter, r *http.Request) bool {
				part := strings.Contains(r.URL.RawQuery, "partNumber=2&")
				if !part && time.Since(began) < 5*time.Second {
					return false
				}
				if takes {
					_, _ = io.Copy(io.Discard, r.Body)
				}
				select {
				case <-r.Context().Done(): // which net/http sees only where the body was taken
				case <-time.After(time.Minute):
				}
				return true
			})
			time.AfterFunc(time.Second, func() {
				if _, err := ask(t, b); err != nil {
					t.Errorf("a question in between: %v", err)
				}
			})
			wantError(t, tryPut(t.Context(), b, large), "no answer for 1") // 10s, or one more that it was asked whether it wants the part
			if took := time.Since(began); took > 18*time.Second || f.count("partNumber=2&") != 1 {
				t.Errorf("takes it: %v; took %v, and the part was sent %d times, want some 10s and once", takes, took, f.count("partNumber=2&"))
			}
		})
	}
}
