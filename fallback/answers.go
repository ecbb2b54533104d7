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

const (
	// promptly is how long a bucket may take at first to answer a question. A healthy bucket takes a tenth of a second; a wait for
	// one that hangs costs no more than a tenth of the shortest notice.
	promptly = 3 * time.Second
	// longestWork is how long a bucket that was slow with contents may take to answer for one: a third of what a drain has as a rule.
	longestWork = 4 * silence
)

// answers is what a client knows of how its bucket answers. It bounds the wait for an answer to a question (GET and HEAD), which
// costs the bucket nothing, and to a request that sends content, or has the bucket put parts together: the bucket may be at work.
type answers struct {
	client aws.HTTPClient
	slower slower

	mu       sync.Mutex
	question patience
	content  patience
	heard    int // how often it has answered anything
}

func newAnswers() *answers {
	return &answers{question: patience{least: promptly, most: silence}, content: patience{least: silence, most: longestWork}}
}

// patience is how long a bucket may take to answer: least at first, and up to most once it was slow or silent.
type patience struct{ least, most, now time.Duration }

func (p *patience) bound() time.Duration { return max(p.now, p.least) }

// answered notes how long an answer took. A bucket that was slow may be slow again, so patience falls by an eighth an answer at most.
func (p *patience) answered(took time.Duration) { p.now = min(max(4*took, p.now-p.now/8), p.most) }

// silent makes the next request wait twice as long as this one did: a bucket that does not answer in a moment may only be slow.
func (p *patience) silent(after time.Duration) { p.now = max(p.now, min(2*after, p.most)) }

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
		a.answered(req.Method, time.Since(last))
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
		a.atWork(still, a.knock(req))
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

// knock asks the server a question after a request with content had no answer, and reports whether it was answered. That tells a
// connection that failed, and a bucket that is slow, from a bucket that hangs: an upload of many parts should not fail for one
// connection. Any answer will do, so nothing is signed.
func (a *answers) knock(req *http.Request) bool {
	door := url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Path: "/"}
	head, err := http.NewRequestWithContext(req.Context(), http.MethodHead, door.String(), nil)
	if err != nil {
		return false
	}
	resp, err := a.ask(head)
	if err == nil {
		resp.Body.Close()
	}
	return err == nil
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

// bound returns how long the answer to a request may take. That of a request with content is due so long after the connection has
// taken the last byte, which the connection sees to (patientConn).
func (a *answers) bound(method string) time.Duration {
	if !question(method) {
		return math.MaxInt64
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.question.bound()
}

// work is how long a connection may pass nothing.
func (a *answers) work() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.content.bound()
}

// sofar is how often the bucket has answered.
func (a *answers) sofar() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.heard
}

func question(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// answered notes an answer, and how long it took.
func (a *answers) answered(method string, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard++
	if question(method) {
		a.question.answered(took)
	} else {
		a.content.answered(took)
	}
}

func (a *answers) silent(after time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.question.silent(after)
}

// atWork notes that a request with content had no answer, and whether the bucket answers others. One that answers nobody is not at work.
func (a *answers) atWork(after time.Duration, others bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.content.silent(after); !others {
		a.content.now = 0
	}
}

// hangs tells the SDK whether to try a request again that had no answer. If the bucket has answered nothing else since, it does
// not: the drain has better uses for the time, and comes again by itself. If it answered others, only that connection failed, or the
// bucket is slow, and has twice the time once.
func (a *answers) hangs(err error) aws.Ternary {
	e, silent := errors.AsType[*silentError](err)
	if !silent {
		return aws.UnknownTernary
	}
	return aws.BoolTernary(a.sofar() > e.heard && e.after < 2*silence)
}
