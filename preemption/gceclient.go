package preemption

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	google "cloud.google.com/go/compute/metadata"
)

// gceMetadata asks Google's metadata server through Google's own client, without its retries: by default it asks a dead
// server six times before it returns an error. Its call to wait for a change is not used, because after a failure that
// sleeps for 5 s of the 30 that a preemption leaves.
type gceMetadata struct {
	transport *http.Transport
	endpoint  *url.URL // nil: the client's own choice
	clock     serviceClock
}

// newGCEMetadata returns a client of the server at cfg.Endpoint; where that is empty, of the one that GCE_METADATA_HOST
// names, or else of the link-local address.
func newGCEMetadata(cfg Metadata) (*gceMetadata, error) {
	at, err := parseEndpoint(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	return &gceMetadata{transport: cfg.transport(), endpoint: at}, nil
}

// get returns the value at a path under instance/, which may end in a query. Everything but a value and "there is none" is
// an error, which means: not known. The caller's ctx bounds it.
func (m *gceMetadata) get(ctx context.Context, path string) (answer, error) {
	// The client returns neither ETags nor errors as they were, so each question has a round trip that remembers both.
	one := &exchange{next: m.transport, endpoint: m.endpoint, clock: &m.clock}
	client := google.NewWithOptions(&google.Options{Client: &http.Client{Transport: one}})
	body, err := client.GetWithContext(ctx, "instance/"+path)
	_, absent := errors.AsType[google.NotDefinedError](err)
	switch {
	case err == nil:
		return answer{body: []byte(body), found: true, etag: one.etag}, nil
	case absent:
		return answer{}, nil
	case one.err != nil:
		return answer{}, inTime(ctx, one.err)
	default: // the body broke off
		return answer{}, inTime(ctx, err)
	}
}

// errFlavor is the error for an answer from something else than the server, such as a captive portal or a process that
// listens in its place.
var errFlavor = errors.New("the answer lacks the header Metadata-Flavor: Google")

// errNoAnswer is the error that the client gets for every failure: after most others it would ask again.
var errNoAnswer = errors.New("no definite answer")

// exchange is the round trip of one question. It lets only definite answers through to the client, so no redirect either,
// and keeps the ETag and the error that the client would not return.
type exchange struct {
	next     http.RoundTripper
	endpoint *url.URL
	clock    *serviceClock

	etag string
	err  error
}

func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	if x.endpoint != nil {
		r = r.Clone(r.Context())
		r.URL.Scheme, r.URL.Host, r.Host = x.endpoint.Scheme, x.endpoint.Host, ""
	}
	resp, err := x.next.RoundTrip(r)
	if err != nil {
		x.err = err
		return nil, errNoAnswer
	}
	resp.Body = &cappedBody{ReadCloser: resp.Body, left: bodyLimit}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusNotFound:
		if resp.Header.Get("Metadata-Flavor") == "Google" {
			x.etag = resp.Header.Get("Etag")
			x.clock.hear(resp)
			return resp, nil
		}
		x.err = errFlavor
	default:
		x.err = &statusError{resp.StatusCode}
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil { // read to its end, the connection serves again
		x.err = fmt.Errorf("%w, and its body broke off: %w", x.err, err)
	}
	resp.Body.Close()
	return nil, errNoAnswer
}
