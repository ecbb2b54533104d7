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

// promptly is how long a bucket has for the first answer to a question. One that is well takes a tenth of a second, and a
// tenth of the shortest notice is what there is to lose with one that hangs.
const promptly = 3 * time.Second

// answers is what a client knows of how its bucket answers. It bounds the wait for those to questions (GET and HEAD), which
// cost the bucket nothing: short at first, longer for one that was slow or silent. What sends content, or has the bucket put
// parts together, has the whole of silence: a link may be slow, and so may that.
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
	heard int // what had been heard of the bucket when it was asked, or when the knock was
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

// send also returns when something was last taken of the request. A connection that takes nothing for long is closed by
// whoever notices first, and the error is of the closing as often as of the wait.
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

// sending is a request's body, and when something was last read of it.
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

// knock asks for anything at all after content was not answered for, so that hangs can tell: an upload of many parts should
// not be for one connection. Any answer will do, so nothing is signed.
func (a *answers) knock(req *http.Request) {
	door := url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Path: "/"}
	head, err := http.NewRequestWithContext(req.Context(), http.MethodHead, door.String(), nil)
	if err != nil {
		return // then nobody answers
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

// bound is how long the answer to a request may take, beside what the connection allows.
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

// answered takes note of an answer: one who was slow may be again, and that is forgotten slowly.
func (a *answers) answered(method string, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard++
	if question(method) {
		a.patience = min(max(4*took, a.patience-a.patience/8), silence)
	}
}

// silent has the next question wait longer: what does not answer in a moment may be slow.
func (a *answers) silent(after time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.patience = max(a.patience, min(2*after, silence))
}

// hangs has the SDK not try again where the bucket has answered nobody since it was asked: whoever sends blocks has better
// to do with the time, and comes again. Where others were answered it was the one connection.
func (a *answers) hangs(err error) aws.Ternary {
	e, silent := errors.AsType[*silentError](err)
	if !silent {
		return aws.UnknownTernary
	}
	return aws.BoolTernary(a.sofar() > e.heard)
}
