package coordinator

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// A certificate is good until it expires, even if its key was stolen. So an operator can revoke the certificates of a name that were made
// until now. The coordinators refuse them at once, and the agents as soon as they get the list with the answers to their beats. The list is
// in the log.

// revokedAt is the instant before which certificates made for a name are refused; zero: none are.
func (ac *access) revokedAt(n certs.Name) (at time.Time) {
	ac.ledger.view(func(m *registry.Registry) { at = m.Door.Revoked[n.String()] })
	return at
}

// revoked is the list of revoked names and its version; 0: there never was one. The list is empty if the caller has that version or a later
// one.
func (ac *access) revoked(has uint64) (version uint64, all []*api.Revoked) {
	ac.ledger.view(func(m *registry.Registry) {
		if m.Door.RevokedAt.IsZero() {
			return
		}
		if version = uint64(m.Door.RevokedAt.UnixNano()); version <= has { // less if the log was restored from an older snapshot
			return
		}
		for of, at := range m.Door.Revoked {
			role, name, _ := strings.Cut(of, " ")
			all = append(all, &api.Revoked{Role: role, Name: name, At: timestamppb.New(at)})
		}
	})
	slices.SortFunc(all, func(a, b *api.Revoked) int { return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Name, b.Name)) })
	return version, all
}

// knowsMore warns that an agent has a later list than this coordinator. The agent's list is not taken: a node could shut out others by it.
func (ac *access) knowsMore(node string, its, ours uint64) {
	if its <= ours {
		return
	}
	if times := ac.denials.count("more is revoked", time.Now()); times > 0 {
		ac.log.Warn("an agent knows of certificates that were revoked and are not here: was a snapshot restored from before? lifeboat revoke them again",
			"node", node, "revoked_at", time.Unix(0, int64(its)).UTC(), "others", times-1)
	}
}

// Revoke revokes certificates: because a key was stolen, or because a person is not to change anything any more.
func (s *operator) Revoke(ctx context.Context, r *api.RevokeRequest) (*api.RevokeReply, error) {
	n := certs.Name{Role: certs.Role(r.GetRole()), Name: r.GetName()}
	if err := n.Check(); err != nil {
		return nil, fault("revoke: %v", err)
	}
	if n.Role == certs.RoleCoordinator {
		return nil, fault("revoke: the certificate of %s: whoever has it may have the log, and the key of the CA: remove it (lifeboat raft remove) and bring a new CA", n)
	}
	if me, err := caller(ctx); err != nil || me == n && !r.Undo {
		return nil, fault("revoke: the certificate of %s is the one that asks: let another operator do it", n)
	}
	if err := checkText("reason", r.GetReason()); err != nil {
		return nil, err
	}
	return &api.RevokeReply{}, s.pass(ctx, &registry.Pass{Certs: &n, Undo: r.GetUndo()})
}

func (s *operator) ListRevoked(context.Context, *api.ListRevokedRequest) (*api.ListRevokedReply, error) {
	_, all := s.access.revoked(0)
	return &api.ListRevokedReply{Revoked: all}, nil
}
