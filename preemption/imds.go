package preemption

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// metadata asks the EC2 instance metadata service through the AWS SDK's client, without its tokens, retries and fallback: by default
// it reports a refused connection after 4 s, and falls back to version 1 without a word.
type metadata struct {
	client    *imds.Client
	session   *session
	transport *http.Transport
}

// newMetadata returns a client of the service at cfg.Endpoint; where that is empty, of the one that
// AWS_EC2_METADATA_SERVICE_ENDPOINT names, or else of the link-local address.
func newMetadata(cfg Metadata, allowV1 bool) (*metadata, error) {
	if _, err := parseEndpoint(cfg.Endpoint); err != nil {
		return nil, err
	}
	transport := cfg.transport()
	session := newSession(transport, allowV1)
	return &metadata{
		transport: transport,
		session:   session,
		client: imds.New(imds.Options{
			Endpoint:          cfg.Endpoint,
			ClientEnableState: imds.ClientEnabled, // the configuration asked for EC2
			APIOptions:        []func(*middleware.Stack) error{bare},
			HTTPClient:        &http.Client{Transport: session, CheckRedirect: refuseRedirects},
		}),
	}, nil
}

// bare takes out of the SDK's stack what the session and the polls do: the session keeps the token, and the next poll is the retry. All
// that is left is done for each question, as long as the host lives.
func bare(s *middleware.Stack) error {
	_, token := s.Finalize.Remove("APITokenProvider")
	_, refused := s.Deserialize.Remove("APITokenProvider")
	_, again := s.Finalize.Remove("Retry")
	return errors.Join(token, refused, again)
}

// get returns the text at path, or false where the service says that there is none. Everything else is an error, which
// means: not known. The caller's ctx bounds it.
func (m *metadata) get(ctx context.Context, path string) (body []byte, found bool, err error) {
	out, err := m.client.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	switch {
	case status(err) == http.StatusNotFound:
		return nil, false, nil
	case err != nil:
		return nil, false, explain(ctx, err)
	}
	defer out.Content.Close()
	if body, err = io.ReadAll(out.Content); err != nil {
		return nil, false, explain(ctx, err)
	}
	return body, true, nil
}

// close ends waiting requests and idle connections. The client may be used again.
func (m *metadata) close() {
	m.session.giveUp()
	m.transport.CloseIdleConnections()
}

// explain shortens an error that the SDK has wrapped in many layers, where it can.
func explain(ctx context.Context, err error) error {
	if code := status(err); code != 0 {
		return &statusError{code}
	}
	if errors.Is(err, errLong) {
		err = errLong
	} else if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // the caller adds what was asked
	}
	return inTime(ctx, err)
}

// status is the HTTP status of the answer that err stands for, or 0. A refused token is no answer.
func status(err error) int {
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return answer.HTTPStatusCode()
	}
	return 0
}
