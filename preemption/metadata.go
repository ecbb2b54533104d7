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
	// dialLimit and askLimit hold a poll well inside one second, so that no answer that fails to come delays the next
	// poll. A healthy service, on the host itself, answers in about a millisecond.
	dialLimit = 250 * time.Millisecond
	askLimit  = 800 * time.Millisecond

	// bodyLimit is far above any answer of EC2's and Google's, which are under 4 KiB. Azure's list of events has its own.
	bodyLimit = 64 << 10
)

// Metadata is what every source that asks a cloud's metadata service needs to know.
type Metadata struct {
	Endpoint string        // a URL in place of the service's own address; empty: that, or what the cloud's own tools' environment names
	Poll     time.Duration // how often the most urgent path is asked; 0: each second
	Log      *slog.Logger

	// Dial replaces the network. Nil: TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Polled is told of every question that was asked, if it is not nil. It must not block.
	Polled func(Poll)
}

// Poll is one question to a metadata service, and how it went.
type Poll struct {
	Source, Path string
	// Result is "ok" for an answer that means something, whether notice or none, the status of one that does not, or why
	// there was none: timeout, refused, reset, garbage. The words are few, so that they can be a metric's label.
	Result string
	Took   time.Duration // 0 where the service was asked to wait
}

func (m Metadata) every() time.Duration { return cmp.Or(m.Poll, time.Second) }

// transport is the way to a link-local metadata service: no proxy, no patience.
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
		MaxIdleConnsPerHost:    8, // of four paths, each asked twice at a time: Google's hang, and an answer may be late
		MaxResponseHeaderBytes: bodyLimit,
		IdleConnTimeout:        5 * time.Minute, // above the longest pause between two polls
	}
}

// refuseRedirects is an http.Client's CheckRedirect: whoever answers elsewhere says nothing about this machine.
func refuseRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// parseEndpoint reads an endpoint, which must be a URL; nil where it is empty.
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

// statusError is an answer that says nothing of what was asked.
type statusError struct{ Code int }

func (e *statusError) Error() string {
	return fmt.Sprintf("answered %d %s", e.Code, http.StatusText(e.Code))
}

// errLong ends a body that has no end.
var errLong = fmt.Errorf("body is longer than %d bytes", bodyLimit)

// cappedBody ends in an error where more than left bytes come.
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

// result names how a poll went, in one of few words.
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
