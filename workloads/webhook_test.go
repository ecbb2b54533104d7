package workloads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// receiver is the other end of a webhook, within the bubble.
type receiver struct {
	mu   sync.Mutex // guards got
	got  []received
	from time.Time

	conns chan net.Conn
	once  sync.Once // closes conns
}

type received struct {
	after  time.Duration // since the receiver was made
	path   string
	header http.Header
	body   string
}

func (r *receiver) Accept() (net.Conn, error) {
	c, ok := <-r.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (r *receiver) Close() error {
	r.once.Do(func() { close(r.conns) })
	return nil
}
func (r *receiver) Addr() net.Addr { return &net.UnixAddr{Name: "bubble"} }

// receive serves in the bubble until the test ends; answer gets the number of the request, from 1.
func receive(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) (*receiver, *http.Client) {
	t.Helper()
	rec := &receiver{from: time.Now(), conns: make(chan net.Conn)}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		rec.mu.Lock()
		rec.got = append(rec.got, received{time.Since(rec.from), r.URL.Path, r.Header, string(body)})
		n := len(rec.got)
		rec.mu.Unlock()
		answer(n, w, r)
	})}
	served := make(chan error)
	go func() { served <- server.Serve(rec) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		client, end := net.Pipe()
		select {
		case rec.conns <- end:
			return client, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		<-served
	})
	return rec, &http.Client{Transport: transport}
}

func (r *receiver) requests() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got
}

func status(codes ...int) func(int, http.ResponseWriter, *http.Request) {
	return func(n int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(codes[min(n, len(codes))-1]) }
}

const hookURL = "http://hooks.test/secret-path?key=secret-key"

func TestWebhookPostsTheWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, client := receive(t, status(http.StatusNoContent))
		secret := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(secret, []byte("Bearer abc\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		h := Webhook{
			URL: hookURL, Client: client,
			Headers: map[string]string{"X-Team": "data"}, HeaderFiles: map[string]string{"Authorization": secret},
		}
		changed := testWord(PhaseChanged)
		changed.Deadline = time.Date(2026, 11, 22, 12, 0, 0, 0, time.FixedZone("", 3600))
		for _, w := range []Word{testWord(PhaseNoticed), changed} {
			if err := h.Tell(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
		got := rec.requests()
		if len(got) != 2 {
			t.Fatalf("got %d requests, want 2", len(got))
		}
		var w Word
		if err := json.Unmarshal([]byte(got[0].body), &w); err != nil || w.Incident != "inc-1" || w.Phase != PhaseNoticed {
			t.Errorf("got %s, %v, want the word", got[0].body, err)
		}
		for name, want := range map[string]string{
			"Content-Type": "application/json", "X-Team": "data", "Authorization": "Bearer abc", "Idempotency-Key": "inc-1/noticed",
		} {
			if v := got[0].header.Get(name); v != want {
				t.Errorf("header %s: got %q, want %q", name, v, want)
			}
		}
		if key, want := got[1].header.Get("Idempotency-Key"), "inc-1/changed/preempt/2026-11-22T11:00:00Z"; key != want {
			t.Errorf("key of the changed word: got %s, want %s", key, want)
		}
	})
}

func TestWebhookTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, client := receive(t, status(503, 500, 408, 425, 429, 502, 503, 503, 503, 200))
		if err := (Webhook{URL: hookURL, Client: client}).Tell(t.Context(), testWord(PhaseNoticed)); err != nil {
			t.Fatal(err)
		}
		got := rec.requests()
		if len(got) != 10 {
			t.Fatalf("got %d requests, want 10", len(got))
		}
		pause := firstPause
		for i := 1; i < len(got); i++ {
			if gap := got[i].after - got[i-1].after; gap < pause || gap > 2*pause || gap > longestPause {
				t.Errorf("pause %d: %v, want %v to %v", i, gap, pause, 2*pause)
			}
			pause = min(2*pause, longestPause/2)
			if a, b := got[i].header.Get("Idempotency-Key"), got[0].header.Get("Idempotency-Key"); a != b {
				t.Errorf("try %d has the key %s, the first %s", i+1, a, b)
			}
			if got[i].body != got[0].body {
				t.Errorf("try %d said %s, the first %s", i+1, got[i].body, got[0].body)
			}
		}
	})
}

func TestWebhookThatIsRefused(t *testing.T) {
	for _, code := range []int{301, 302, 303, 307, 308, 400, 401, 403, 404, 410, 422} {
		synctest.Test(t, func(t *testing.T) {
			rec, client := receive(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://elsewhere.test/")
				w.WriteHeader(code)
			})
			err := Webhook{URL: hookURL, Client: client}.Tell(t.Context(), testWord(PhaseNoticed))
			errorWith(t, err, "POST to http://hooks.test: the answer is "+fmt.Sprint(code))
			if got := rec.requests(); len(got) != 1 || got[0].path != "/secret-path" {
				t.Errorf("%d: got %d requests, want one, and none elsewhere", code, len(got))
			}
		})
	}
}

func TestWebhookHeedsRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"20": 20 * time.Second,
		time.Date(2000, 1, 1, 0, 0, 30, 0, time.UTC).Format(http.TimeFormat): 30 * time.Second, // a bubble begins with 2000
		"3600":                 60*time.Second - tryLimit, // as late as leaves time for one more try
		"99999999999999999999": firstPause,                // no number
		"soon":                 firstPause,
		"-7":                   firstPause,
	} {
		synctest.Test(t, func(t *testing.T) {
			rec, client := receive(t, func(n int, w http.ResponseWriter, _ *http.Request) {
				if n == 1 {
					w.Header().Set("Retry-After", value)
					w.WriteHeader(http.StatusTooManyRequests)
				}
			})
			if err := (Webhook{URL: hookURL, Client: client}).Tell(within(t, time.Minute), testWord(PhaseNoticed)); err != nil {
				t.Fatal(err)
			}
			if got := rec.requests()[1].after; got < want || got > want+firstPause {
				t.Errorf("Retry-After %s: tried again after %v, want %v", value, got, want)
			}
		})
	}
}

func TestWebhookThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, client := receive(t, func(n int, w http.ResponseWriter, r *http.Request) {
			switch n {
			case 1: // never answers
				<-r.Context().Done()
			case 2: // never ends its answer
				w.WriteHeader(http.StatusInternalServerError)
				for r.Context().Err() == nil {
					if _, err := w.Write(make([]byte, 4096)); err != nil {
						return
					}
				}
			}
		})
		if err := (Webhook{URL: hookURL, Client: client}).Tell(within(t, time.Minute), testWord(PhaseNoticed)); err != nil {
			t.Fatal(err)
		}
		got := rec.requests()
		if len(got) != 3 || got[1].after < tryLimit || got[2].after > tryLimit+6*firstPause {
			t.Errorf("got %d requests, want the first to be left after %v and the second at once", len(got), tryLimit)
		}
	})
}

func TestWebhookGivesUpWhenTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := receive(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 2 {
				<-r.Context().Done() // the failure before says more than "time is up"
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		began := time.Now()
		err := Webhook{URL: hookURL, Client: client}.Tell(within(t, 4*time.Second), testWord(PhaseNoticed))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 4*time.Second {
			t.Errorf("got %v after %v, want the context's end", err, time.Since(began))
		}
		errorWith(t, err, "given up after 2 tries, as the time is up; the last: the answer is 503 Service Unavailable")
	})
}

func TestWebhookNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := receive(t, func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		err := Webhook{URL: hookURL, Client: client}.Tell(within(t, 4*time.Second), testWord(PhaseNoticed))
		errorWith(t, err, "given up at the first try, as the time is up, and nobody answered")
	})
}

// A file that is being replaced may be missing for a moment.
func TestWebhookReadsItsSecretForEachTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, client := receive(t, status(http.StatusOK))
		secret := filepath.Join(t.TempDir(), "token")
		time.AfterFunc(time.Second, func() {
			if err := os.WriteFile(secret, []byte("new"), 0o600); err != nil {
				t.Error(err)
			}
		})
		h := Webhook{URL: hookURL, Client: client, HeaderFiles: map[string]string{"X-Token": secret}}
		if err := h.Tell(within(t, time.Minute), testWord(PhaseNoticed)); err != nil {
			t.Fatal(err)
		}
		if got := rec.requests()[0].header.Get("X-Token"); got != "new" {
			t.Errorf("got %q, want what was written meanwhile", got)
		}
	})
}

func TestWebhookKeepsSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte("secret-in-file\x01"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, echo := receive(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, r.Header, r.URL) // as servers do that want to help
		})
		refusing := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("refused")
		}}}
		withHeader := map[string]string{"X-Token": "secret-value"}
		for name, h := range map[string]Webhook{
			"an answer":          {URL: hookURL, Client: echo, Headers: withHeader},
			"no connection":      {URL: hookURL, Client: refusing, Headers: withHeader},
			"a password":         {URL: "http://user:secret@hooks.test/", Client: refusing},
			"a bad value":        {URL: hookURL, Client: echo, Headers: map[string]string{"X-Token": "secret\n"}},
			"a bad value (file)": {URL: hookURL, Client: echo, HeaderFiles: map[string]string{"X-Token": file}},
			"a bad URL":          {URL: "http://hooks.test/secret\x01", Client: echo},
		} {
			err := h.Tell(within(t, 10*time.Second), testWord(PhaseNoticed))
			if err == nil || strings.Contains(fmt.Sprint(err, h), "secret") {
				t.Errorf("%s: got %v, %s, want an error without the secret", name, err, h)
			}
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"20", "Sat, 01 Jan 2000 00:00:30 GMT", "-1", "4294967295", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := retryAfter(s, time.Unix(946684800, 0)); got < 0 || got > 24*time.Hour {
			t.Errorf("%q: got %v", s, got)
		}
	})
}
