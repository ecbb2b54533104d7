package preemption

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/preemption/azurefake"
	"github.com/lifeboat/lifeboat/preemption/ec2fake"
	"github.com/lifeboat/lifeboat/preemption/gcefake"
)

// Each cloud is asked at the path of its documents, with the purpose. Without a cloud the answer says so.
func TestDocument(t *testing.T) {
	ec2, gce, azure := ec2fake.New(ec2fake.Instance{ID: "i-1"}), gcefake.New(gcefake.Instance{ID: "1"}), azurefake.New(azurefake.Machine{ID: "1"})
	servers := map[string]*httptest.Server{SourceEC2: httptest.NewServer(ec2), SourceGCE: httptest.NewServer(gce), SourceAzure: httptest.NewServer(azure)}
	ask := func(provider string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), documentLimit)
		defer cancel()
		s := DefaultSettings()
		s.Provider, s.Endpoint = provider, servers[provider].URL
		said, signed, err := s.Document(ctx, nil, Purpose{Audience: "lifeboat:a&b:c", Nonce: "0123456789"})
		if err == nil && said != provider {
			t.Errorf("got a document of %s, want one of %s", said, provider)
		}
		return string(signed), err
	}
	for provider, part := range map[string]string{SourceEC2: "rsa2048", SourceGCE: "attach a service account", SourceAzure: "attested/document"} {
		if _, err := ask(provider); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s without a document: got error %v, want one with %q", provider, err, part)
		}
	}
	ec2.Attest(func() string { return "of ec2" })
	gce.Attest(func(audience string) string { return "of gce for " + audience })
	azure.Attest(func(nonce string) string { return "of azure for " + nonce })
	for provider, want := range map[string]string{SourceEC2: "of ec2", SourceGCE: "of gce for lifeboat:a&b:c", SourceAzure: "of azure for 0123456789"} {
		if got, err := ask(provider); err != nil || got != want {
			t.Errorf("%s: got %q (%v), want %q", provider, got, err, want)
		}
	}
	for _, s := range servers {
		s.Close()
	}
	if provider, _, err := (Settings{Provider: "none"}).Document(t.Context(), nil, Purpose{}); provider != "" || err != nil {
		t.Errorf("no cloud: got %q, %v", provider, err)
	}
}
