package fallback_test

import (
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/fallback"
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

// What lies in the way of a name is no fault of the storage, which takes others. It keeps what is old for long, and a file may get a name
// that was once a directory's.
func TestNameThatIsNotToBeHadIsNoFaultOfTheStorage(t *testing.T) {
	f, b := newFakeS3(t)
	answer(f, always, http.StatusConflict, "ObjectParentIsFile", func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/file/below") })
	d := fallback.NewDirectory(t.TempDir())
	put := func(s fallback.Storage, name string) error {
		return s.Put(t.Context(), name, 1, strings.NewReader("x"), false)
	}
	for _, s := range []fallback.Storage{b, d} {
		for _, name := range []string{"file", "dir/below/file"} {
			if err := put(s, name); err != nil {
				t.Fatalf("%T: put %s: %v", s, name, err)
			}
		}
		if err := put(s, "file/below"); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%T: got %v below a file, want fs.ErrInvalid", s, err)
		}
	}
	for _, name := range []string{"file/below/further", "dir/below", "dir", strings.Repeat("x", 300)} {
		if err := put(d, name); !errors.Is(err, fs.ErrInvalid) || errors.Is(err, fs.ErrExist) {
			t.Errorf("%.20s: got %v, want fs.ErrInvalid", name, err)
		}
	}
	if err := d.Put(t.Context(), "file/below", 1, strings.NewReader("x"), true); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("got %v of a name that should be new, want fs.ErrInvalid", err)
	}
}
