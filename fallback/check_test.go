package fallback_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/lifeboat/lifeboat/fallback"
)

func TestCheckTellsWhatIsWrong(t *testing.T) {
	wantError(t, fallback.Check(t.Context(), fallback.NewDirectory("/nowhere/at/all")), "is it mounted")
	reads := func(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }
	conditional := func(r *http.Request) bool { return r.Header.Get("If-None-Match") != "" }
	for _, c := range []struct {
		status int
		word   string
		of     func(*http.Request) bool
		says   []string
	}{
		{http.StatusForbidden, "AccessDenied", reads, []string{"ask for what is not there", "forbidden", "s3:ListBucket"}},
		{http.StatusBadRequest, "ExpiredToken", nil, []string{"400", "ExpiredToken", "renew them"}},
		{http.StatusForbidden, "InvalidAccessKeyId", nil, []string{"correct the keys"}},
		{http.StatusForbidden, "RequestTimeTooSkewed", nil, []string{"clock"}},
		{http.StatusBadRequest, "AuthorizationHeaderMalformed", nil, []string{"fallback.s3.region"}},
		{http.StatusMovedPermanently, "PermanentRedirect", nil, []string{"fallback.s3.region"}},
		{http.StatusForbidden, "QuotaExceeded", func(r *http.Request) bool { return !reads(r) }, []string{"write: ", "raise the quota"}},
		{http.StatusNotImplemented, "NotImplemented", conditional, []string{"write only where nothing is", "NotImplemented"}},
	} {
		f, b := newFakeS3(t)
		f.set(func(w http.ResponseWriter, r *http.Request) bool {
			if c.of != nil && !c.of(r) {
				return false
			}
			_, _ = io.Copy(io.Discard, r.Body)
			refuse(w, c.status, c.word)
			return true
		})
		wantError(t, fallback.Check(t.Context(), b), c.says...)
	}
	_, b := newFakeS3(t)
	for range 2 {
		if err := fallback.Check(t.Context(), b); err != nil {
			t.Errorf("a bucket that is well: got %v", err)
		}
	}
}
