package preemption

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

// Purpose is what a cloud puts into a document so that the document is of no use elsewhere. EC2 puts nothing in.
type Purpose struct {
	Audience string // a URI (Google)
	Nonce    string // ten digits (Azure)
}

// documentLimit is longer than a poll may take: Google signs each token anew.
const documentLimit = 4 * askLimit

// Document asks the cloud for its signed document on which machine this is, as the metadata service gives it. The provider
// is "" where there is no cloud to ask.
func (s Settings) Document(ctx context.Context, dial func(ctx context.Context, network, addr string) (net.Conn, error), p Purpose) (provider string, signed []byte, err error) {
	cloud, err := s.Open(slog.New(slog.DiscardHandler), dial, nil)
	if cloud == nil || err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, documentLimit)
	defer cancel()
	signed, err = cloud.Document(ctx, p)
	return s.Resolve(), signed, err
}

// Document asks for the instance identity document with its RSA-2048 signature. It may be called beside Next.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/retrieve-iid.html
func (e *EC2) Document(ctx context.Context, _ Purpose) ([]byte, error) {
	const path = "instance-identity/rsa2048"
	out, err := e.metadata.client.GetDynamicData(ctx, &imds.GetDynamicDataInput{Path: path})
	switch {
	case status(err) == http.StatusNotFound:
		return nil, fmt.Errorf("ask for %s: %w", path, errNotSaid)
	case err != nil:
		return nil, fmt.Errorf("ask for %s: %w", path, explain(ctx, err))
	}
	defer out.Content.Close()
	return io.ReadAll(out.Content) // the session has bounded it
}

// errNoServiceAccount is Google's 404: the token is that of a service account.
var errNoServiceAccount = errors.New("it has no identity to give: attach a service account to the instance; it needs no roles")

// Document asks for an identity token. It may be called beside Run and Next.
// https://cloud.google.com/compute/docs/instances/verifying-instance-identity
func (g *GCE) Document(ctx context.Context, p Purpose) ([]byte, error) {
	const path = "service-accounts/default/identity"
	answer, err := g.metadata.get(ctx, path+"?"+url.Values{"audience": {p.Audience}, "format": {"full"}}.Encode())
	if err == nil && !answer.found {
		err = errNoServiceAccount
	}
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	return answer.body, nil
}

// Document asks for the attested document. It may be called beside Next.
// https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#attested-data
func (a *Azure) Document(ctx context.Context, p Purpose) ([]byte, error) {
	const path = "/metadata/attested/document"
	body, err := a.ask(ctx, http.MethodGet, path+"?"+url.Values{"api-version": {"2021-02-01"}, "nonce": {p.Nonce}}.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	return body, nil
}
