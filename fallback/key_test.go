package fallback_test

import (
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"testing"
)

// A key that is longer than a bucket takes is not sent, and the error says so: the bucket is as well as before.
func TestBucketTakesNoKeyThatIsTooLong(t *testing.T) {
	f, b := newFakeS3(t)
	answer(f, always, http.StatusBadRequest, "KeyTooLongError", nil)
	err := b.Put(t.Context(), "lifeboat-blocks/"+strings.Repeat("d/", 600), 1, strings.NewReader("x"), false)
	wantError(t, err, "bytes, and a bucket takes 1024 at most")
	if !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("got %v, want one that tells that nothing can have the name", err)
	}
}
