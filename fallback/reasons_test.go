package fallback_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/fallback"
)

// What is wrong with a storage is said in the same words for each content: a manifest counts those that are lost by them.
func TestReasonNamesTheStorageAndNotTheContent(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lifeboat-unfinished"), nil, 0o600); err != nil { // where it makes a directory
		t.Fatal(err)
	}
	f, b := newFakeS3(t)
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `<Error><Code>AccessDenied</Code><Message>User: arn:aws:sts::1:assumed-role/r/i is not authorized to perform: s3:PutObject on resource: "arn:aws:s3:::spill/%s" because no policy allows it</Message></Error>`, r.URL.Path)
		return true
	}
	for _, c := range []struct {
		s    fallback.Storage
		want string
	}{
		{fallback.NewDirectory(dir), "write to " + dir + ": not a directory"},
		{b, `on resource: "arn:aws:s3:::spill/*" because no policy allows it): the agent needs s3:PutObject on the objects`},
	} {
		for _, name := range []string{"a", "b"} {
			if err := c.s.Put(t.Context(), name, 1, strings.NewReader("x"), false); err == nil || !strings.HasSuffix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want ... %s", err, c.want)
			}
		}
	}
}

// The error of a request that is forbidden names the right that was missing.
func TestForbiddenNamesTheRightThatIsMissing(t *testing.T) {
	f, b := newFakeS3(t)
	deny := func(method string) {
		answer(f, always, http.StatusForbidden, "AccessDenied", func(r *http.Request) bool { return r.Method == method })
	}
	for _, c := range []struct {
		method string
		ask    func() error
		want   string
		not    string
	}{
		{"PUT", func() error { return tryPut(t.Context(), b, 10) }, "s3:PutObject", "s3:GetObject"},
		{"PUT", func() error { return tryPut(t.Context(), b, 6<<20) }, "s3:PutObject", "s3:GetObject"},
		{"GET", func() error { _, err := b.Get(t.Context(), "a", 0, make([]byte, 1)); return err }, "s3:GetObject", "s3:PutObject"},
		{"HEAD", func() error { _, _, _, err := b.Stat(t.Context(), "a"); return err }, "s3:ListBucket", "s3:PutObject"},
	} {
		deny(c.method)
		if err := c.ask(); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), c.not) {
			t.Errorf("%s: got %v, want %s named, and %s not", c.method, err, c.want, c.not)
		}
	}
	answer(f, always, http.StatusForbidden, "AccessDenied", func(r *http.Request) bool { return r.Method == "DELETE" || parts(r) && r.Method == "PUT" })
	wantError(t, tryPut(t.Context(), b, 6<<20), "the agent needs s3:PutObject", "the agent needs s3:AbortMultipartUpload")
}

// A server's 404 about something else than the content does not say that there is no content: a reader would be told that it never was.
func TestServerThatDoesNotKnowTheKeysDoesNotSayThatNothingIsThere(t *testing.T) {
	f, b := newFakeS3(t)
	ask := func() error { _, err := b.Get(t.Context(), "a", 0, make([]byte, 1)); return err }
	answer(f, always, http.StatusNotFound, "XAdminUserNotFound", nil)
	if err := ask(); errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want it told apart from a content that is not there", err)
	}
	wantError(t, ask(), "XAdminUserNotFound", "correct the keys")
	answer(f, always, http.StatusNotFound, "SomethingElse", nil)
	wantError(t, ask(), "404", "SomethingElse")
	f.set(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "default backend - 404") // a proxy's, whose bucket is away
		return true
	})
	wantError(t, ask(), "as no bucket does", "fallback.s3.endpoint")
	wantError(t, tryPut(t.Context(), b, 10), "as no bucket does")
	f.set(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusNotFound); return true })
	wantError(t, tryPut(t.Context(), b, 10), "as no bucket does")
	if err := ask(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v of a 404 without a word, want that there is none", err)
	}
	if _, _, _, err := b.Stat(t.Context(), "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v of a head that is not there", err)
	}
}
