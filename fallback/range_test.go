package fallback_test

import (
	"bytes"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/lifeboat/lifeboat/fallback/storagetest"
)

// A proxy on the way may leave out which range was asked for, so that the answer is the beginning.
func TestBucketThatAnswersWithAnotherRange(t *testing.T) {
	f, b := newFakeS3(t)
	if err := tryPut(t.Context(), b, 1000); err != nil {
		t.Fatal(err)
	}
	f.set(func(_ http.ResponseWriter, r *http.Request) bool {
		r.Header.Del("Range")
		return false
	})
	if n, err := b.Get(t.Context(), "x", 500, make([]byte, 100)); err == nil {
		t.Errorf("got %d bytes of another range and no error", n)
	}
}

// An answer that breaks off is asked for once more, and only once.
func TestBucketWhoseAnswerBreaksOff(t *testing.T) {
	f, b := newFakeS3(t)
	if err := tryPut(t.Context(), b, 100_000); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 100_000)
	for _, times := range []int64{1, always} {
		var n atomic.Int64
		f.set(func(w http.ResponseWriter, r *http.Request) bool {
			if n.Add(1) > times {
				return false
			}
			w.Header().Set("Content-Length", "100000")
			w.WriteHeader(http.StatusPartialContent)
			fmt.Fprint(w, "half of it")
			return true
		})
		have, err := b.Get(t.Context(), "x", 0, got)
		if whole := err == nil && bytes.Equal(got, storagetest.ContentOf("x", 100_000)); whole != (times == 1) || n.Load() != 2 {
			t.Errorf("%d break off: got %d bytes, %v, and it was asked %d times", times, have, err, n.Load())
		}
	}
}
