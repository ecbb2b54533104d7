package fallback_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A bucket answers 200 before it puts the parts together. An answer that ends there, or is not the bucket's, does not say that it has.
func TestUploadWhoseLastAnswerSaysNothing(t *testing.T) {
	for _, said := range []string{"", " \n ", "<html><body>welcome</body></html>"} {
		for _, there := range []bool{false, true} {
			f, b := newFakeS3(t)
			f.set(func(w http.ResponseWriter, r *http.Request) bool {
				const done = "Done"
				if !completes(r) || r.Header.Get(done) != "" {
					return false
				}
				if r.Header.Set(done, "yes"); there {
					f.ServeHTTP(httptest.NewRecorder(), r)
				}
				_, _ = io.WriteString(w, said)
				return true
			})
			switch err := tryPut(t.Context(), b, large); {
			case there && err != nil:
				t.Errorf("%q: got %v, though it is there", said, err)
			case !there:
				wantError(t, err, "does not say")
			}
			if n := f.openUploads(); n != 0 {
				t.Errorf("%q: %d uploads are left open", said, n)
			}
		}
	}
}
