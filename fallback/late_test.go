package fallback_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/fallback"
)

// An upload that is stuck half sent when time is up is given up then: nothing of it could count, and the rest of the tail is for others. One
// that was sent whole may still be answered.
func TestUploadThatIsHalfSentWhenTimeIsUpIsNotWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		size  int
		reads bool
		most  time.Duration
	}{
		"a small one": {1 << 20, false, 0},
		"a part":      {large, false, 0},
		"sent whole":  {1 << 20, true, 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, fallback.S3{}, func(t *testing.T, f *fakeS3, b *fallback.Bucket) {
				f.set(func(_ http.ResponseWriter, r *http.Request) bool {
					if r.Method != http.MethodPut {
						return false
					}
					if c.reads {
						_, _ = io.Copy(io.Discard, r.Body)
					}
					time.Sleep(10 * time.Second)
					return true
				})
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				began := time.Now()
				if err := tryPut(ctx, b, c.size); err == nil {
					t.Error("it was put")
				}
				if over := time.Since(began) - time.Second; over != c.most || f.count("PUT") != 1 {
					t.Errorf("the upload ended %v after its time with %d requests, want %v and one", over, f.count("PUT"), c.most)
				}
			})
		})
	}
}

// A bucket that hangs at the last request of a large upload, and at the one that aborts it, holds nobody for longer than either.
func TestAbortIsNotWaitedForBeyondTheLastAnswer(t *testing.T) {
	inBubble(t, fallback.S3{}, func(t *testing.T, f *fakeS3, b *fallback.Bucket) {
		f.set(func(_ http.ResponseWriter, r *http.Request) bool {
			if completes(r) || r.Method == http.MethodDelete {
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			}
			return completes(r) || r.Method == http.MethodDelete
		})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		began := time.Now()
		if err := tryPut(ctx, b, large); err == nil {
			t.Error("it was put")
		}
		if over := time.Since(began) - time.Second; over != 2*time.Second || f.count("DELETE") != 1 {
			t.Errorf("the upload ended %v after its time, want 2s, and was aborted %d times", over, f.count("DELETE"))
		}
	})
}

// A bucket that says "slow down" when time is up is not asked again: nothing may leave. Over TLS the SDK does not read a content before
// it sends its head.
func TestUploadIsNotTriedAgainWhenTimeIsUp(t *testing.T) {
	f, b := newFakeS3OverTLS(t)
	ctx, stop := context.WithCancel(t.Context())
	f.set(func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		stop()
		refuse(w, http.StatusServiceUnavailable, "SlowDown")
		return true
	})
	if err := tryPut(ctx, b, 1000); err == nil {
		t.Error("it was put")
	}
	if n := f.count("PUT"); n != 1 {
		t.Errorf("it was asked %d times, want once", n)
	}
}
