package preemption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"
)

const (
	// dialLimit and askLimit keep a poll well inside one second, so that an answer that does not come does not delay the
	// next poll. A healthy service is on the host itself and answers in about a millisecond.
	dialLimit = 250 * time.Millisecond
	askLimit  = 800 * time.Millisecond

	// bodyLimit is far above any answer of EC2 and Google, which are under 4 KiB. Azure's list of events has a limit of its
	// own.
	bodyLimit = 64 << 10
)

// Metadata is what every source that asks a cloud's metadata service needs to know.
type Metadata struct {
	Endpoint string        // a URL; empty: the one that the cloud's own tools' environment names, or the service's own address
	Poll     time.Duration // how often the most urgent path is asked; 0: each second
	Log      *slog.Logger

	// Dial replaces the network. Nil: TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Polled is called for every question, if it is not nil. It must not block.
	Polled func(Poll)
}

// Poll is one question to a metadata service, and how it went.
type Poll struct {
	Source, Path string
	// Result is "ok" for a definite answer, whether a notice or none, the status of any other answer, or why there was none:
	// timeout, refused, reset, garbage. It has few values, so that it can be a metric's label.
	Result string
	Took   time.Duration // 0 where the service was asked to wait
}

func (m Metadata) every() time.Duration { return cmp.Or(m.Poll, time.Second) }

// transport makes a transport to a link-local metadata service: no proxy, short limits.
func (m Metadata) transport() *http.Transport {
	dial := m.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return &http.Transport{
		Proxy: nil, // HTTP_PROXY must not capture a link-local address
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialLimit)
			defer cancel()
			return dial(ctx, network, addr)
		},
		DisableCompression:     true,
		MaxIdleConnsPerHost:    8, // four paths, each with two questions at a time: a hanging or late one, and a new one
		MaxResponseHeaderBytes: bodyLimit,
		IdleConnTimeout:        5 * time.Minute, // above the longest pause between two polls
	}
}

// refuseRedirects is an http.Client's CheckRedirect: a server at another address says nothing about this machine.
func refuseRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// parseEndpoint reads an endpoint, which must be a URL; nil if it is empty.
func parseEndpoint(endpoint string) (*url.URL, error) {
	if endpoint == "" {
		return nil, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("metadata endpoint %q is not a URL: write it like http://169.254.169.254", endpoint)
	}
	return u, nil
}

// inTime replaces err by a short error when time ran out.
func inTime(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no whole answer in time: %w", ctx.Err())
	}
	return err
}

// statusError is an answer whose status says nothing about the question.
type statusError struct{ Code int }

func (e *statusError) Error() string {
	return fmt.Sprintf("answered %d %s", e.Code, http.StatusText(e.Code))
}

// errLong ends a body that is too long.
var errLong = fmt.Errorf("body is longer than %d bytes", bodyLimit)

// cappedBody is a body that ends in errLong once more than left bytes have come.
type cappedBody struct {
	io.ReadCloser
	left int
}

func (b *cappedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errLong
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	b.left -= n
	return n, err
}

// result is Poll.Result for an error.
func result(err error) string {
	if err == nil {
		return "ok"
	}
	if s, ok := errors.AsType[*statusError](err); ok {
		return strconv.Itoa(s.Code)
	}
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "reset"
	default:
		return "garbage"
	}
}
