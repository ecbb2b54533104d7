package fallback_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/fallback"
)

// answersAfter has a bucket answer for contents, and questions, after so long.
func answersAfter(f *fakeS3, contents, questions time.Duration) {
	f.set(func(_ http.ResponseWriter, r *http.Request) bool {
		wait := contents
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			wait = questions
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		select {
		case <-time.After(wait):
			return false
		case <-r.Context().Done():
			return true
		}
	})
}

// A bucket that is slow with contents, and answers questions, gets the time that it takes: once it is known to be slow, each is sent once.
func TestBucketThatIsSlowWithContentsIsWaitedFor(t *testing.T) {
	inBubble(t, fallback.S3{}, func(t *testing.T, f *fakeS3, b *fallback.Bucket) {
		answersAfter(f, 15*time.Second, 0)
		for i, want := range []int{2, 3, 4} {
			if err := tryPut(t.Context(), b, 1000); err != nil || f.count("PUT") != want {
				t.Errorf("put %d: %v, and was sent %d times in all, want %d", i+1, err, f.count("PUT"), want)
			}
		}
		if err := tryPut(t.Context(), b, large); err != nil || f.count("partNumber=1&") != 1 || f.count("POST", "uploadId") != 1 {
			t.Errorf("in parts: %v", err)
		}
	})
}

// One that answers questions, and never for contents, holds an upload for as long as three attempts would have taken, and then for less
// than its bound. Once it answers nobody it is given up as soon as before.
func TestBucketThatNeverAnswersForContentsIsGivenUp(t *testing.T) {
	inBubble(t, fallback.S3{}, func(t *testing.T, f *fakeS3, b *fallback.Bucket) {
		answersAfter(f, time.Hour, 0)
		put := func(want time.Duration, sent int) {
			began := time.Now()
			wantError(t, tryPut(t.Context(), b, 1000), "it may hang")
			if took := time.Since(began); took < want || took > want+2*time.Second || f.count("PUT") != sent {
				t.Errorf("took %v and %d requests in all, want %v and %d", took, f.count("PUT"), want, sent)
			}
		}
		put(30*time.Second, 2)
		put(40*time.Second, 3)
		put(40*time.Second, 4)
		answersAfter(f, time.Hour, time.Hour)
		put(43*time.Second, 5)
		put(16*time.Second, 6)
	})
}
