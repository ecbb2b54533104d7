package fallback_test

import (
	"net/http"
	"testing"
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
