package fallback_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
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

// A bucket that encrypts may forbid its key and nothing else.
func TestForbiddenNamesTheKeyThatIsMissing(t *testing.T) {
	f, b := newFakeS3(t)
	f.set(func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code><Message>User: arn:aws:sts::123456789012:assumed-role/agents/i-0123456789abcdef0 is not authorized to perform: "+
			"kms:GenerateDataKey on resource: arn:aws:kms:eu-west-1:123456789012:key/1234abcd because no identity-based policy allows the kms:GenerateDataKey action</Message></Error>")
		return true
	})
	if err := tryPut(t.Context(), b, 10); err == nil || !strings.HasSuffix(err.Error(), "the agent needs kms:GenerateDataKey and kms:Decrypt on the key that the bucket encrypts with") {
		t.Errorf("got %v, want the rights on the key", err)
	}
}

// What stands before a bucket may take no part of a large content, and answers with a page of its own.
func TestProxyThatTakesNoLargeBody(t *testing.T) {
	f, b := newFakeS3(t)
	f.set(func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_, _ = io.WriteString(w, "<html>\r\n<head><title>413 Request Entity Too Large</title></head>\r\n<body><hr><center>nginx</center>\r\n</html>\r\n")
		return true
	})
	wantError(t, tryPut(t.Context(), b, 1000), "413", "bodies of 5 MiB", "client_max_body_size")
}

// A server that is not reached by its name, or whose certificate nobody here knows, is told apart from one that is down.
func TestServerThatIsNotReachedSaysWhatHelps(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "who")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	of := func(s fallback.S3, dial fallback.Dialer) error {
		s.Bucket = "spill"
		b, err := fallback.OpenBucket(t.Context(), s, dial)
		if err != nil {
			t.Fatal(err)
		}
		_, _, _, err = b.Stat(t.Context(), "x")
		return err
	}
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	wantError(t, of(fallback.S3{Endpoint: "https://s3.example"}, func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "spill.s3.example", IsNotFound: true}
	}), "spill.s3.example: no such host: ", "fallback.s3.path_style")
	wantError(t, of(fallback.S3{Endpoint: srv.URL}, nil), "unknown authority: ", "AWS_CA_BUNDLE")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", ca)
	wantError(t, of(fallback.S3{Endpoint: "https://s3.test:" + port}, func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, srv.Listener.Addr().String())
	}), "not spill.s3.test", "fallback.s3.path_style")
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
