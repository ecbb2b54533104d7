package fallback_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/disks/smalldisk"
	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/fallback/storagetest"
)

const large = 12 << 20 // three parts

func tryPut(ctx context.Context, s fallback.Storage, size int) error {
	return s.Put(ctx, "x", int64(size), bytes.NewReader(storagetest.ContentOf("x", size)), false)
}

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("got %v, want an error that says %q", err, word)
		}
	}
}

// answer refuses what matches the words with a status, that many times.
func answer(f *fakeS3, times int, status int, word string, which func(*http.Request) bool) {
	var n atomic.Int64
	f.set(func(w http.ResponseWriter, r *http.Request) bool {
		if which != nil && !which(r) || n.Add(1) > int64(times) {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body) // who is still sending when the connection is closed may not hear the answer
		refuse(w, status, word)
		return true
	})
}

func parts(r *http.Request) bool { return r.URL.Query().Has("partNumber") }

const always = 1 << 30

func TestBucketForbidden(t *testing.T) {
	f, b := newFakeS3(t)
	answer(f, always, http.StatusForbidden, "AccessDenied", nil)
	wantError(t, tryPut(t.Context(), b, 10), "forbidden", "AccessDenied", "s3:PutObject")
	if n := f.count("PUT"); n != 1 {
		t.Errorf("asked %d times, want once: a no is a no", n)
	}
}

func TestBucketThatIsNotThere(t *testing.T) {
	f, b := newFakeS3(t)
	answer(f, always, http.StatusNotFound, "NoSuchBucket", nil)
	wantError(t, tryPut(t.Context(), b, 10), "the bucket does not exist")
	if _, err := b.Get(t.Context(), "x", 0, make([]byte, 1)); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("get: got %v, want an error that does not say that the content is not there", err)
	}
}

func TestBucketThatSaysSlowDownIsTriedAgain(t *testing.T) {
	for status, word := range map[int]string{http.StatusServiceUnavailable: "SlowDown", http.StatusTooManyRequests: "TooManyRequests"} {
		inBubble(t, fallback.S3{}, func(t *testing.T, f *fakeS3, b *fallback.Bucket) {
			answer(f, 2, status, word, parts)
			if err := tryPut(t.Context(), b, large); err != nil {
				t.Fatal(err)
			}
			if n := f.count("PUT", "partNumber=1&"); n != 3 {
				t.Errorf("%s: the first part was sent %d times, want 3", word, n)
			}
			answer(f, always, status, word, nil)
			wantError(t, tryPut(t.Context(), b, 10), strconv.Itoa(status), word)
		})
	}
}

func TestUploadThatFailsIsAborted(t *testing.T) {
	f, b := newFakeS3(t)
	answer(f, always, http.StatusInsufficientStorage, "QuotaExceeded", func(r *http.Request) bool { return r.URL.Query().Get("partNumber") == "2" })
	wantError(t, tryPut(t.Context(), b, large), "507", "QuotaExceeded")
	if n := f.openUploads(); n != 0 {
		t.Errorf("%d uploads are left open: their parts cost money", n)
	}
	if _, _, _, err := b.Stat(t.Context(), "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat: got %v, want fs.ErrNotExist", err)
	}
}

func TestUploadIsAbortedWhenItsContextEnds(t *testing.T) {
	f, b := newFakeS3(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.set(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("partNumber") == "2" {
			cancel()
		}
		return false
	})
	if err := tryPut(ctx, b, large); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if n := f.openUploads(); n != 0 || f.count("partNumber=3") != 0 {
		t.Errorf("%d uploads are open, and part 3 was asked %d times", n, f.count("partNumber=3"))
	}
}

// A bucket that takes a request and says nothing holds nobody beyond the context.
func TestBucketThatSaysNothing(t *testing.T) {
	f, b := newFakeS3(t)
	over := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f.set(func(_ http.ResponseWriter, r *http.Request) bool {
		cancel()
		select {
		case <-over:
		case <-r.Context().Done():
		}
		return true
	})
	defer close(over)
	if err := tryPut(ctx, b, 100); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if n := f.count("PUT"); n != 1 {
		t.Errorf("it was asked %d times, want once", n)
	}
}

func TestBucketThatIsAway(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	b := clientOf(t, srv.URL)
	srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := tryPut(ctx, b, 100)
	wantError(t, err, "no answer", "connection refused")
	if strings.Contains(err.Error(), "StatusCode") {
		t.Errorf("got %v, which is the SDK's way of saying it", err)
	}
}

// Every third request is cut in its middle, and nobody sees it.
func TestBucketThatCutsTheConnection(t *testing.T) {
	f, b := newFakeS3(t)
	var n atomic.Int64
	f.set(func(http.ResponseWriter, *http.Request) bool {
		if n.Add(1)%3 == 0 {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	for i := range 6 {
		content := storagetest.ContentOf(fmt.Sprint(i), 1000)
		if err := b.Put(t.Context(), "x", 1000, bytes.NewReader(content), false); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 1000)
		if _, err := b.Get(t.Context(), "x", 0, got); err != nil || !bytes.Equal(got, content) {
			t.Errorf("got %v, want what was put", err)
		}
	}
}

func completes(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
}

// The bucket puts the parts together, and its answer is lost. The next attempt hears that there is no such upload, or else who aborts it.
func TestUploadWhoseLastAnswerIsLost(t *testing.T) {
	for _, lost := range []int64{1, always} {
		f, b := newFakeS3(t)
		var cut atomic.Int64
		f.set(func(_ http.ResponseWriter, r *http.Request) bool {
			const done = "Done"
			if !completes(r) || r.Header.Get(done) != "" || cut.Add(1) > lost {
				return false
			}
			r.Header.Set(done, "yes")
			f.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		})
		if err := tryPut(t.Context(), b, large); err != nil {
			t.Errorf("got %v, though it is there", err)
		}
		if n := f.count("partNumber=1&"); n != 1 {
			t.Errorf("the first part was sent %d times, want once", n)
		}
	}
}

// The upload is gone, and what is there under its name is another content. No part is left, either.
func TestUploadThatIsGoneIsNotTakenForDone(t *testing.T) {
	f, b := newFakeS3(t)
	for range 2 { // without what was there before, and with it
		f.set(func(_ http.ResponseWriter, r *http.Request) bool {
			if completes(r) {
				f.mu.Lock()
				clear(f.uploads)
				f.mu.Unlock()
			}
			return false
		})
		err := tryPut(t.Context(), b, large)
		wantError(t, err, "does not know the upload")
		if errors.Is(err, fs.ErrNotExist) || strings.Contains(fmt.Sprint(err), "its parts stay") {
			t.Errorf("got %v", err)
		}
		f.set(nil)
		if err := b.Put(t.Context(), "x", large, bytes.NewReader(make([]byte, large)), false); err != nil {
			t.Fatal(err)
		}
	}
}

// What arrives is not what was sent: the bucket says so, and the client knows one that says nothing.
func TestBucketVerifiesWhatItIsGiven(t *testing.T) {
	f, b := newFakeS3(t)
	f.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			r.Header.Set("x-amz-checksum-crc32c", "AAAAAA==") // as if the bytes had changed on the way
		}
		return false
	})
	wantError(t, tryPut(t.Context(), b, 100), "BadDigest")
	wantError(t, tryPut(t.Context(), b, large), "BadDigest")
	f.set(nil)
	f.mute = true
	wantError(t, tryPut(t.Context(), b, 100), "does not verify checksums")
	wantError(t, tryPut(t.Context(), b, large), "does not verify checksums")
	if n := f.openUploads(); n != 0 {
		t.Errorf("%d uploads are left open", n)
	}
}

func TestKeysAreReadFromTheirFile(t *testing.T) {
	f, _ := newFakeS3(t)
	srv := httptest.NewServer(f)
	defer srv.Close()
	var who atomic.Value
	f.set(func(_ http.ResponseWriter, r *http.Request) bool {
		who.Store(r.Header.Get("Authorization"))
		return false
	})
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("[spill]\naws_access_key_id = from-the-file\naws_secret_access_key = s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := fallback.S3{Bucket: "spill", Endpoint: srv.URL, PathStyle: true, CredentialsFile: keys, Profile: "spill"}
	b, err := fallback.OpenBucket(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := tryPut(t.Context(), b, 10); err != nil || !strings.Contains(who.Load().(string), "from-the-file") {
		t.Errorf("got %v, signed as %v, want the key of the file though the environment has one", err, who.Load())
	}
	s.Profile = "nobody"
	if b, err = fallback.OpenBucket(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	wantError(t, tryPut(t.Context(), b, 10), "nobody", keys)
	if err := os.Chmod(keys, 0o640); err != nil {
		t.Fatal(err)
	}
	_, err = fallback.OpenBucket(t.Context(), s, nil)
	wantError(t, err, "fallback.s3.credentials_file", "chmod 600")
	s.CredentialsFile = keys + "-not"
	_, err = fallback.OpenBucket(t.Context(), s, nil)
	wantError(t, err, "fallback.s3.credentials_file")
}

// Keys that are replaced just before they end are used in the same drain, not after it.
func TestKeysThatAreReplacedAreUsedSoon(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	write := func(id string) {
		if err := os.WriteFile(file, []byte("[default]\naws_access_key_id = "+id+"\naws_secret_access_key = s\naws_session_token = t\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	inBubble(t, fallback.S3{CredentialsFile: file}, func(t *testing.T, f *fakeS3, b *fallback.Bucket) {
		if err := tryPut(t.Context(), b, 10); err != nil {
			t.Fatal(err)
		}
		write("second")
		answer(f, always, http.StatusBadRequest, "ExpiredToken", func(r *http.Request) bool { return strings.Contains(r.Header.Get("Authorization"), "first") })
		wantError(t, tryPut(t.Context(), b, 10), "ExpiredToken")
		time.Sleep(15 * time.Second)
		if err := tryPut(t.Context(), b, 10); err != nil {
			t.Errorf("with a file that was replaced 15 s ago: %v", err)
		}
	})
}

// A machine without keys is told so, and not that its bucket forbids what it asks.
func TestNoKeys(t *testing.T) {
	f, _ := newFakeS3(t)
	srv := httptest.NewServer(f)
	defer srv.Close()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere/at/all", "AWS_CONFIG_FILE": "/nowhere/at/all", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	b, err := fallback.OpenBucket(t.Context(), fallback.S3{Bucket: "spill", Endpoint: srv.URL, PathStyle: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = fallback.Check(t.Context(), b)
	wantError(t, err, "ask for what is not there: no keys to sign requests with (", "fallback.s3.credentials_file", "give this machine a role")
	if strings.Contains(err.Error(), "operation error S3") {
		t.Errorf("got the SDK's own account of it: %v", err)
	}
}

func TestDirectoryThatIsNotThereIsNotMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mnt")
	d := fallback.NewDirectory(dir)
	wantError(t, tryPut(t.Context(), d, 10), "is it mounted")
	if _, err := d.Get(t.Context(), "x", 0, make([]byte, 1)); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("get: got %v, want an error that does not say that the content is not there", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := tryPut(t.Context(), d, 10); err != nil {
		t.Errorf("once it is there: %v", err)
	}
}

func wantNoneUnfinished(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, "lifeboat-unfinished"), func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			t.Errorf("%s is left", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A full disk: the error says so, what was there stays, nothing half written is left.
func TestDirectoryThatIsFull(t *testing.T) {
	dir := smalldisk.New(t, 1<<20)
	d := fallback.NewDirectory(dir)
	if err := tryPut(t.Context(), d, 100_000); err != nil {
		t.Fatal(err)
	}
	if err := tryPut(t.Context(), d, 2<<20); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want ENOSPC", err)
	}
	if n, _, _, err := d.Stat(t.Context(), "x"); n != 100_000 || err != nil {
		t.Errorf("what was there: got %d bytes, %v", n, err)
	}
	wantNoneUnfinished(t, dir)
}

// goneContent breaks off because its own file is gone.
type goneContent struct{ io.Reader }

func (c goneContent) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("open the block: %w", fs.ErrNotExist)
	}
	return n, err
}

// A content whose own file goes while it is put gives the same error as a directory that was swept. It is put nowhere: the content that
// had the name stays.
func TestContentThatGoesWhileItIsPutIsPutNowhere(t *testing.T) {
	dir := t.TempDir()
	d := fallback.NewDirectory(dir)
	if err := d.Put(t.Context(), "a/before", 5, strings.NewReader("whole"), false); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/before", "a/new"} {
		for _, content := range []string{"half", ""} {
			if err := d.Put(t.Context(), name, 9, goneContent{strings.NewReader(content)}, false); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("put %q as %s: got %v, want the content's own error", content, name, err)
			}
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "a/before")); string(got) != "whole" {
		t.Errorf("got %q, %v, want what was there before", got, err)
	}
	if _, _, _, err := d.Stat(t.Context(), "a/new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name that nothing was put under: got %v", err)
	}
	wantNoneUnfinished(t, dir)
}

// A share whose server is away holds a system call for ever, but not the caller. A pipe without a writer does the same.
func TestDirectoryThatHangs(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "x")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	d := fallback.NewDirectory(dir)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := d.Get(ctx, "x", 0, make([]byte, 10)); !errors.Is(err, context.DeadlineExceeded) { // else it never comes back
		t.Errorf("got %v, want the context's error", err)
	}
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // lets the call that was left behind come back
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
}

// waiting is a content that is not there before something is closed.
type waiting struct {
	io.Reader
	until chan struct{}
}

func (w waiting) Read(p []byte) (int, error) {
	<-w.until
	return w.Reader.Read(p)
}

// As many uploads as may be configured, and more calls than may be under way, are no sign that a share hangs.
func TestDirectoryThatIsBusy(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, there, done := fallback.NewDirectory(dir), make(chan struct{}), make(chan error)
		put := func(from, to int) {
			for i := from; i < to; i++ {
				go func() {
					done <- d.Put(t.Context(), fmt.Sprint("x/", i), 1, waiting{strings.NewReader("x"), there}, false)
				}()
			}
			synctest.Wait()
		}
		put(0, 64)
		if err := fallback.Check(t.Context(), d); err != nil {
			t.Errorf("during 64 uploads: %v", err)
		}
		put(64, 300)
		close(there)
		for range 300 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestSweepRemovesWhatIsOldAndOurs(t *testing.T) {
	dir := t.TempDir()
	d := fallback.NewDirectory(dir)
	for _, name := range []string{"ours/a/old", "ours/a/new", "ours/b/old", "others/old", "lifeboat-unfinished/dead", "lifeboat-unfinished/alive"} {
		if err := d.Put(t.Context(), name, 1, strings.NewReader("x"), false); err != nil {
			t.Fatal(err)
		}
		if age := map[string]time.Duration{"old": 50 * time.Hour, "dead": 30 * time.Hour, "alive": 2 * time.Hour, "new": time.Hour}[filepath.Base(name)]; true {
			at := time.Now().Add(-age)
			if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	removed, err := d.Sweep(t.Context(), time.Now().Add(-48*time.Hour), func(name string) bool { return strings.HasPrefix(name, "ours/") })
	if removed != 3 || err != nil {
		t.Errorf("got %d removed, %v, want 3", removed, err)
	}
	for name, want := range map[string]bool{"ours/a/old": false, "ours/a/new": true, "ours/b": false, "others/old": true, "lifeboat-unfinished/dead": false, "lifeboat-unfinished/alive": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: got %v, want it there: %t", name, err, want)
		}
	}
	if err := tryPut(t.Context(), d, 10); err != nil {
		t.Errorf("put after the sweep: %v", err)
	}
	if err := d.Put(t.Context(), "ours/b/again", 1, strings.NewReader("x"), false); err != nil {
		t.Errorf("put into a directory that was swept away: %v", err)
	}
}

// A share that hangs while it is swept does not hold the sweep's caller, which has other things to look after. A share that is slow
// with each of many files does not hang.
func TestSweepOfADirectoryThatHangs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, hold := fallback.NewDirectory(dir), make(chan struct{})
		for i := range 20 {
			if err := d.Put(t.Context(), fmt.Sprint("ours/", i), 1, strings.NewReader("x"), false); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		slow := func(string) bool { time.Sleep(5 * time.Second); return false }
		if _, err := d.Sweep(ctx, time.Now(), slow); err != nil {
			t.Errorf("one that is slow: %v", err)
		}
		_, err := d.Sweep(ctx, time.Now(), func(string) bool { <-hold; return false })
		wantError(t, err, "silent for 10s")
		close(hold)
		synctest.Wait()
	})
}

// One agent sweeps away directories that others know to be there. Their Puts succeed all the same.
func TestPutAfterAnotherSwept(t *testing.T) {
	dir := t.TempDir()
	one, other := fallback.NewDirectory(dir), fallback.NewDirectory(dir)
	if err := tryPut(t.Context(), one, 10); err != nil {
		t.Fatal(err)
	}
	dead, at := filepath.Join(dir, "lifeboat-unfinished", "dead"), time.Now().Add(-30*time.Hour)
	if err := os.WriteFile(dead, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(dead, at, at); err != nil {
		t.Fatal(err)
	}
	if removed, err := other.Sweep(t.Context(), time.Time{}, nil); removed != 1 || err != nil {
		t.Errorf("got %d removed, %v, want 1", removed, err)
	}
	if err := fallback.Check(t.Context(), one); err != nil {
		t.Errorf("after that: %v", err)
	}
}

// How old a content is goes by the clock that dated it, which is the share's: one machine that is years off removes nothing that
// others have just put there, and leaves nothing that is old. A bubble's clock is years off.
func TestSweepGoesByTheClockOfTheShare(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := fallback.NewDirectory(dir)
		all := func(string) bool { return true }
		for _, off := range []time.Duration{0, 100 * 365 * 24 * time.Hour} { // far behind, and far ahead
			time.Sleep(off)
			for _, name := range []string{"new", "old", "lifeboat-unfinished/alive", "lifeboat-unfinished/dead"} {
				if err := d.Put(t.Context(), name, 1, strings.NewReader("x"), false); err != nil {
					t.Fatal(err)
				}
			}
			_, _, at, err := d.Stat(t.Context(), "new")
			if err != nil {
				t.Fatal(err)
			}
			at = at.Add(-50 * time.Hour)
			for _, name := range []string{"old", "lifeboat-unfinished/dead"} {
				if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
					t.Fatal(err)
				}
			}
			if removed, err := d.Sweep(t.Context(), time.Now().Add(-48*time.Hour), all); removed != 2 || err != nil {
				t.Errorf("at %v: got %d removed, %v, want 2", time.Now(), removed, err)
			}
			for _, name := range []string{"new", "lifeboat-unfinished/alive"} {
				if _, _, _, err := d.Stat(t.Context(), name); err != nil {
					t.Errorf("at %v: %s: %v", time.Now(), name, err)
				}
			}
		}
	})
}
