package fallback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// promptly is how long a bucket may take at first to answer a question. A healthy bucket takes a tenth of a second; a wait for
// one that hangs costs no more than a tenth of the shortest notice.
const promptly = 3 * time.Second

// answers is what a client knows of how its bucket answers. It bounds the wait for an answer to a question (GET and HEAD), which
// costs the bucket nothing: by promptly at first, by more once the bucket was slow or silent. A request that sends content, or has
// the bucket put parts together, may take all of silence: the link may be slow, and so may the bucket's work.
type answers struct {
	client aws.HTTPClient
	slower slower

	mu       sync.Mutex
	patience time.Duration // 0: promptly
	heard    int           // how often it has answered anything
}

// silentError says that a bucket did not answer.
type silentError struct {
	after time.Duration
	heard int // answers.heard when the question was asked; for a request with content, when the knock was
}

func (e *silentError) Error() string {
	return fmt.Sprintf("no answer for %v: it may hang", e.after.Round(100*time.Millisecond))
}

// Do sends a request, as an http.Client does.
func (a *answers) Do(req *http.Request) (*http.Response, error) {
	if err := a.slower.begin(req.Context()); err != nil {
		return nil, err
	}
	resp, err := a.ask(req)
	status := 0
	if err == nil {
		status = resp.StatusCode
	}
	a.slower.end(status, time.Now())
	return resp, err
}

func (a *answers) ask(req *http.Request) (*http.Response, error) {
	asked, heard := time.Now(), a.sofar()
	ctx, cancel := context.WithCancel(req.Context())
	timer := time.AfterFunc(a.bound(req.Method), cancel)
	resp, last, err := a.send(req.WithContext(ctx), asked)
	inTime, took := timer.Stop(), time.Since(asked)
	if err == nil && inTime {
		a.answered(req.Method, took)
		resp.Body = &answer{resp.Body, cancel}
		return resp, nil
	}
	cancel()
	if err == nil { // as the time was up: its body would break off
		resp.Body.Close()
	}
	still := time.Since(last)
	timeout, is := errors.AsType[net.Error](err)
	if req.Context().Err() != nil || inTime && still < silence && !(is && timeout.Timeout()) {
		return nil, err
	}
	if question(req.Method) {
		a.silent(took)
	} else {
		heard = a.sofar()
		a.knock(req)
	}
	return nil, &silentError{still, heard}
}

// send also returns when the connection last took a part of the request. A connection that takes nothing for long is closed by
// the side that notices first, so the error speaks of the closing as often as of the timeout.
func (a *answers) send(req *http.Request, asked time.Time) (*http.Response, time.Time, error) {
	if req.ContentLength <= 0 {
		resp, err := a.client.Do(req)
		return resp, asked, err
	}
	body := &sending{ReadCloser: req.Body}
	body.last.Store(&asked)
	req.Body = body
	resp, err := a.client.Do(req)
	return resp, *body.last.Load(), err
}

// sending is a request's body that notes when it was last read from.
type sending struct {
	io.ReadCloser
	last atomic.Pointer[time.Time]
}

func (s *sending) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	now := time.Now()
	s.last.Store(&now)
	return n, err
}

// knock asks the server a question after a request with content had no answer. From that, hangs can tell a connection that failed
// from a bucket that hangs: an upload of many parts should not fail for one connection. Any answer will do, so nothing is signed.
func (a *answers) knock(req *http.Request) {
	door := url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Path: "/"}
	head, err := http.NewRequestWithContext(req.Context(), http.MethodHead, door.String(), nil)
	if err != nil {
		return // as if nobody had answered
	}
	if resp, err := a.ask(head); err == nil {
		resp.Body.Close()
	}
}

// answer is a body that ends its request's context when it is closed.
type answer struct {
	io.ReadCloser
	done func()
}

func (b *answer) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// bound returns how long the answer to a request may take, besides what the connection allows: a request with content has no
// bound of its own.
func (a *answers) bound(method string) time.Duration {
	if !question(method) {
		return math.MaxInt64
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.patience, promptly)
}

// sofar is how often the bucket has answered.
func (a *answers) sofar() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.heard
}

func question(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// answered notes an answer, and how long it took. A bucket that was slow may be slow again, so patience falls by an eighth an
// answer at most.
func (a *answers) answered(method string, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard++
	if question(method) {
		a.patience = min(max(4*took, a.patience-a.patience/8), silence)
	}
}

// silent makes the next question wait twice as long as this one did: a bucket that does not answer in a moment may only be slow.
func (a *answers) silent(after time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.patience = max(a.patience, min(2*after, silence))
}

// hangs tells the SDK whether to try a request again that had no answer. If the bucket has answered nothing else since, it does
// not: the drain has better uses for the time, and comes again by itself. If it answered others, only that connection failed.
func (a *answers) hangs(err error) aws.Ternary {
	e, silent := errors.AsType[*silentError](err)
	if !silent {
		return aws.UnknownTernary
	}
	return aws.BoolTernary(a.sofar() > e.heard)
}
