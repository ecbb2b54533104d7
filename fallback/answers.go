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

	mu       sync.Mutex
	patience time.Duration // 0: promptly
	heard    time.Time     // when it last answered anything
}

// silentError says that a bucket did not answer.
type silentError struct {
	after time.Duration
	asked time.Time
}

func (e *silentError) Error() string {
	return fmt.Sprintf("no answer for %v: it may hang", e.after.Round(100*time.Millisecond))
}

// Do sends a request, as an http.Client does.
func (a *answers) Do(req *http.Request) (*http.Response, error) {
	asked := time.Now()
	ctx, cancel := context.WithCancel(req.Context())
	timer := time.AfterFunc(a.bound(req.Method), cancel)
	resp, err := a.client.Do(req.WithContext(ctx))
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
	timeout, is := errors.AsType[net.Error](err)
	if req.Context().Err() == nil && (!inTime || is && timeout.Timeout()) {
		if question(req.Method) {
			a.silent(took)
		} else {
			a.knock(req)
		}
		return nil, &silentError{took, asked}
	}
	return nil, err
}

// knock asks for anything at all after content was not answered for, so that hangs can tell: an upload of many parts should
// not be for one connection. Any answer will do, so nothing is signed.
func (a *answers) knock(req *http.Request) {
	door := url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Path: "/"}
	head, err := http.NewRequestWithContext(req.Context(), http.MethodHead, door.String(), nil)
	if err != nil {
		return // then nobody answers
	}
	if resp, err := a.Do(head); err == nil {
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

func question(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// answered takes note of an answer: one who was slow may be again, and that is forgotten slowly.
func (a *answers) answered(method string, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = time.Now()
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
	a.mu.Lock()
	defer a.mu.Unlock()
	return aws.BoolTernary(a.heard.After(e.asked))
}
