package coordinator

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/enrol"
)

const (
	defaultTokenLife = time.Hour
	maxTokenLife     = 365 * 24 * time.Hour
	maxTokenUses     = 1_000_000
)

var errNoAuthority = status.Error(codes.FailedPrecondition, "this coordinator issues no certificates: set issue.ca_key in its settings, or make them with lifeboat tls issue")

// CreateToken makes a join token. Its secret is in the answer and nowhere else.
func (s *operator) CreateToken(ctx context.Context, r *api.CreateTokenRequest) (*api.CreateTokenReply, error) {
	if s.access.authority == nil {
		return nil, errNoAuthority
	}
	n := certs.Name{Role: certs.Role(r.GetRole()), Name: r.GetName()}
	if n.Role == "" {
		n.Role = certs.RoleNode
	}
	sample := n
	if sample.Name == "" {
		sample.Name = "any"
	}
	if err := sample.Check(); err != nil {
		return nil, fault("token: %v", err)
	}
	if n.Name == "" && n.Role != certs.RoleNode {
		return nil, fault("token for a certificate of role %s: say for which name it is good (--name)", n.Role)
	}
	if r.Uses < 0 || r.Uses > maxTokenUses {
		return nil, fault("token for %d uses: at most %d, or 0 for any number", r.Uses, maxTokenUses)
	}
	if err := checkSpan("life", r.Life); err != nil {
		return nil, err
	}
	life := defaultTokenLife
	if r.Life != nil {
		life = r.Life.AsDuration()
	}
	if life <= 0 || life > maxTokenLife {
		return nil, fault("token of a life of %s: at least a moment, at most %s", life, maxTokenLife)
	}
	token := certs.NewToken(s.access.authority.Pin())
	by, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	kept := &registry.JoinToken{ID: token.ID, Sum: token.Sum(), Role: n.Role, Name: n.Name, Uses: r.Uses, By: string(by.Role) + ":" + by.Name}
	if kept.Uses == 0 {
		kept.Uses = -1
	}
	eachTime(ctx, token.ID) // a client that repeats the call has not got the first secret, which nobody knows any more
	if err := s.pass(ctx, &registry.Pass{Token: kept, Life: life}); err != nil {
		return nil, err
	}
	made, _ := s.access.token(token.ID)
	return &api.CreateTokenReply{Token: token.String(), Info: tokenTo(made, time.Now())}, nil
}

// ListTokens lists the tokens that a machine could join with now.
func (s *operator) ListTokens(context.Context, *api.ListTokensRequest) (*api.ListTokensReply, error) {
	now, reply := time.Now(), &api.ListTokensReply{}
	s.ledger.view(func(m *registry.Registry) {
		for _, t := range m.Door.Tokens {
			if t.Uses != 0 && now.Before(t.Expires) {
				reply.Tokens = append(reply.Tokens, tokenTo(t, now))
			}
		}
	})
	slices.SortFunc(reply.Tokens, func(a, b *api.TokenInfo) int { return strings.Compare(a.Id, b.Id) })
	return reply, nil
}

func tokenTo(t registry.JoinToken, now time.Time) *api.TokenInfo {
	return &api.TokenInfo{
		Id: t.ID, Role: string(t.Role), Name: t.Name, UsesLeft: max(t.Uses, 0), Joined: t.Joined, By: t.By,
		Remaining: durationpb.New(t.Expires.Sub(now)),
	}
}

// RevokeToken ends a token before its time. Machines that joined with it stay.
func (s *operator) RevokeToken(ctx context.Context, r *api.RevokeTokenRequest) (*api.RevokeTokenReply, error) {
	if _, ok := s.access.token(r.GetId()); !ok && !s.auditor.repeats(ctx) {
		return nil, status.Errorf(codes.NotFound, "token %.20q is not known here, or has expired: lifeboat token list tells those that are", r.GetId())
	}
	return &api.RevokeTokenReply{}, s.pass(ctx, &registry.Pass{Revoke: r.Id})
}

func (s *operator) pass(ctx context.Context, p *registry.Pass) error {
	_, err := s.auditor.decide(ctx, registry.Command{Do: registry.DoPass, Pass: p})
	return asStatus(err)
}

// Renew signs a new certificate for the caller's name and the caller's key. So a thief who has the key can renew the certificate, and one
// who has only the certificate cannot.
func (s *membership) Renew(ctx context.Context, r *api.RenewRequest) (*api.RenewReply, error) {
	if s.access.authority == nil {
		return nil, errNoAuthority
	}
	name, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	key, err := publicKeyOf(r.GetRequest())
	if err != nil {
		return nil, fault("%v", err)
	}
	p, _ := peer.FromContext(ctx)
	shown := p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0] // caller has looked
	if !bytes.Equal(key, shown.RawSubjectPublicKeyInfo) {
		return nil, status.Errorf(codes.PermissionDenied, "the request is for another key than that of the certificate of %s", name)
	}
	if err := s.quotas.spend(name.Name); err != nil {
		return nil, asStatus(err)
	}
	cert, err := s.access.authority.Sign(r.Request, name, s.cfg.Issue.Life, shown.IPAddresses, shown.DNSNames)
	if err != nil {
		return nil, fault("%v", err)
	}
	s.log.Info("a certificate was renewed", "name", name.String())
	return &api.RenewReply{Certificate: cert, Ca: s.access.authority.PEM()}, nil
}

// keepCertificate renews this coordinator's own certificate if it has the CA's key, and else warns before it expires.
func (c *Coordinator) keepCertificate(ctx context.Context) error {
	k := &enrol.Keeper{
		Identity: c.deps.Identity, Log: c.deps.Log, Files: enrol.Files{CA: c.cfg.TLS.CA, Cert: c.cfg.TLS.Cert, Key: c.cfg.TLS.Key},
		Ask: func(_ context.Context, request []byte) (cert, ca []byte, err error) {
			if c.authority == nil {
				return nil, nil, enrol.ErrNotOffered
			}
			// The systemd unit lets the process write to data_dir alone. Files in /etc are renewed by whoever put them there.
			if err := unix.Access(filepath.Dir(c.cfg.TLS.Cert), unix.W_OK); err != nil {
				return nil, nil, fmt.Errorf("%w for %s, which this process may not write (%w): put it into %s", enrol.ErrNotOffered, c.cfg.TLS.Cert, err, filepath.Join(c.cfg.DataDir, "tls"))
			}
			shown := c.deps.Identity.Leaf()
			cert, err = c.authority.Sign(request, c.deps.Identity.Name(), c.cfg.Issue.Life, shown.IPAddresses, shown.DNSNames)
			return cert, c.authority.PEM(), err
		},
	}
	return k.Run(ctx)
}
