package preemption

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

const (
	// dialLimit and askLimit hold a poll well inside one second, so that no answer that fails to come delays the next
	// poll. A healthy service, on the host itself, answers in about a millisecond.
	dialLimit = 250 * time.Millisecond
	askLimit  = 800 * time.Millisecond

	// bodyLimit is far above any answer that we ask for, which are under 200 bytes.
	bodyLimit = 64 << 10
)

// metadata asks the EC2 instance metadata service, version 2 only, with the AWS SDK's client less its patience: left
// alone, it answers a refused connection after 4 s and falls back to version 1 without a word.
type metadata struct {
	client    *imds.Client
	transport *http.Transport
}

// newMetadata returns a client of the service at endpoint; where that is empty, of the one that
// AWS_EC2_METADATA_SERVICE_ENDPOINT names, or else of the link-local address.
func newMetadata(endpoint string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (*metadata, error) {
	if endpoint != "" {
		u, err := url.Parse(endpoint)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("metadata endpoint %q is not a URL: write it like http://169.254.169.254", endpoint)
		}
	}
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	transport := &http.Transport{
		Proxy: nil, // HTTP_PROXY must not capture a link-local address
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialLimit)
			defer cancel()
			return dial(ctx, network, addr)
		},
		DisableCompression:     true,
		MaxResponseHeaderBytes: bodyLimit,
	}
	return &metadata{
		transport: transport,
		client: imds.New(imds.Options{
			Endpoint:                 endpoint,
			ClientEnableState:        imds.ClientEnabled, // the configuration asked for EC2
			EnableFallback:           aws.FalseTernary,
			Retryer:                  aws.NopRetryer{}, // the next poll is the retry
			DisableDefaultMaxBackoff: true,
			HTTPClient: &http.Client{
				Transport:     guard{transport},
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			},
		}),
	}, nil
}

// get returns the text at path, or false where the service says that there is none. Everything else is an error: we do
// not know. The caller's ctx bounds it.
func (m *metadata) get(ctx context.Context, path string) (body []byte, found bool, err error) {
	out, err := m.client.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if unauthorized(err) {
		// The token ran out or the service lost it. The client has dropped it; the second asking fetches a new one.
		out, err = m.client.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	}
	switch {
	case unauthorized(err):
		return nil, false, errors.New("answered 401 Unauthorized to a new token")
	case status(err) == http.StatusNotFound:
		return nil, false, nil
	case err != nil:
		return nil, false, explain(ctx, err)
	}
	defer out.Content.Close()
	body, err = io.ReadAll(out.Content)
	return body, err == nil, err
}

// explain says in few words what the SDK says in many layers, where it can.
func explain(ctx context.Context, err error) error {
	if code := status(err); code != 0 {
		return fmt.Errorf("answered %d %s", code, http.StatusText(code))
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no whole answer in time: %w", ctx.Err())
	}
	if refused, ok := errors.AsType[*url.Error](err); ok {
		return refused
	}
	return err
}

// unauthorized tells whether err stands for a 401. The SDK hides the status of this one answer, to mark it for its own
// retryer, and marks nothing else so.
func unauthorized(err error) bool {
	marked, ok := errors.AsType[interface {
		error
		RetryableError() bool
	}](err)
	return ok && marked.RetryableError()
}

// status is the HTTP status of the answer that err stands for, or 0.
func status(err error) int {
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return answer.HTTPStatusCode()
	}
	return 0
}

// guard stands between the SDK and the wire. The SDK reads every body to its end, so its length is capped here. And an
// answer to the request for a token must never be taken for one about the thing itself: 404 there is not "no notice".
type guard struct{ next http.RoundTripper }

func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = &cappedBody{ReadCloser: resp.Body, left: bodyLimit}
	if r.Method == http.MethodPut && resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("get a metadata token: answered %s", resp.Status)
	}
	return resp, nil
}

// cappedBody ends in an error where more than left bytes come.
type cappedBody struct {
	io.ReadCloser
	left int
}

func (b *cappedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fmt.Errorf("body is longer than %d bytes", bodyLimit)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	b.left -= n
	return n, err
}
