package coordinator

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// A node whose certificate is revoked may do nothing any more, neither over its open connection nor over a new one, also after a restart. Its
// certificate is not renewed, and it cannot join again with its key. Another machine may join under its name with another key. The other
// nodes are told of the revocation once.
func TestRevoke(t *testing.T) {
	inWalledTown(t, func(v *town) {
		token := v.token(&api.CreateTokenRequest{})
		stolen, fresh, other := v.TempDir(), v.TempDir(), v.TempDir()
		for dir, name := range map[string]string{stolen: "host-a", other: "host-b"} {
			if err := v.joins(dir, name, token); err != nil {
				v.Fatal(err)
			}
		}
		a, b := v.as(stolen, "host-a"), v.as(other, "host-b")
		a.register()
		b.register()
		beat := func() *api.HeartbeatReply {
			r, err := b.Heartbeat(v.Context(), &api.HeartbeatRequest{Node: "host-b", Incarnation: b.incarnation, Status: b.status, RevokedVersion: 7})
			if err != nil {
				v.Fatal(err)
			}
			return r
		}
		if r := beat(); r.RevokedVersion != 0 || len(r.Revoked) > 0 {
			v.Errorf("before: got %v", r)
		}
		time.Sleep(5 * time.Second)
		revoke := func(r *api.RevokeRequest) error {
			_, err := v.operator().Revoke(v.Context(), r)
			return err
		}
		if err := revoke(&api.RevokeRequest{Role: "node", Name: "host-a", Reason: "stolen"}); err != nil {
			v.Fatal(err)
		}
		refused := func(when string) {
			v.Helper()
			_, err := a.Renew(v.Context(), &api.RenewRequest{})
			if status.Code(err) != codes.Unauthenticated {
				v.Errorf("%s: got error %v, want Unauthenticated", when, err)
			}
		}
		refused("over the connection that it has")
		r := beat()
		if len(r.Revoked) != 1 || r.Revoked[0].Role != "node" || r.Revoked[0].Name != "host-a" || !r.Revoked[0].At.AsTime().Equal(time.Now()) {
			v.Errorf("got %v, want host-a of now", r.Revoked)
		}
		if again, err := b.Heartbeat(v.Context(), &api.HeartbeatRequest{Node: "host-b", Incarnation: b.incarnation, Status: b.status, RevokedVersion: r.RevokedVersion}); err != nil || len(again.Revoked) > 0 || again.RevokedVersion != r.RevokedVersion {
			v.Errorf("told again: got %v, %v", again, err)
		}
		if later, err := b.Heartbeat(v.Context(), &api.HeartbeatRequest{Node: "host-b", Incarnation: b.incarnation, Status: b.status, RevokedVersion: r.RevokedVersion + 1}); err != nil || len(later.Revoked) > 0 {
			v.Errorf("told one that has a later list: got %v, %v", later, err)
		}
		time.Sleep(v.cfg.Lease + time.Minute)
		wantRefusal(v.T, v.joins(stolen, "host-a", token), "revoked")
		v.restart()
		if err := v.joins(fresh, "host-a", token); err != nil {
			v.Fatalf("another machine of that name: %v", err)
		}
		v.as(fresh, "host-a").register()
		soon, cancel := context.WithTimeout(v.Context(), time.Minute)
		defer cancel()
		if _, err := v.as(stolen, "host-a").Heartbeat(soon, &api.HeartbeatRequest{Node: "host-a"}); err == nil {
			v.Error("after a restart, over another connection: it was heard")
		}
		for _, c := range []struct {
			r    *api.RevokeRequest
			want codes.Code
		}{
			{&api.RevokeRequest{Role: "node", Name: "host-a", Undo: true}, codes.OK},
			{&api.RevokeRequest{Role: "node", Name: "host-a", Undo: true}, codes.NotFound},
			{&api.RevokeRequest{Role: "operator", Name: "eve"}, codes.InvalidArgument},
			{&api.RevokeRequest{Role: "coordinator", Name: "c"}, codes.InvalidArgument},
			{&api.RevokeRequest{Role: "node"}, codes.InvalidArgument},
		} {
			if err := revoke(c.r); status.Code(err) != c.want {
				v.Errorf("%v: got error %v, want %s", c.r, err, c.want)
			}
		}
	})
}

// A restored coordinator logs how many revocations it knows, and logs once, however many agents tell of it, that an agent knows more.
func TestRestoreSaysWhatMayBeForgotten(t *testing.T) {
	m := registry.New()
	m.Door.Revoked = map[string]time.Time{"node host-a": t0}
	soon := time.Now().Add(time.Hour)
	m.Door.Tokens = map[string]registry.JoinToken{
		"one": {Uses: 1, Expires: soon}, "any": {Uses: -1, Expires: soon}, "used": {Expires: soon}, "late": {Uses: 1, Expires: soon.Add(-2 * time.Hour)},
	}
	var file bytes.Buffer
	if err := writeSnapshot(m, &file); err != nil {
		t.Fatal(err)
	}
	cfg := Default()
	cfg.DataDir = t.TempDir()
	done, err := Restore(cfg, &file, Restorer{}, slog.New(slog.DiscardHandler))
	if err != nil || done.Revoked != 1 || done.Tokens != 2 {
		t.Errorf("got %+v, %v; want one name, and two tokens", done, err)
	}
	inTown(t, func(v *town) {
		v.stop()
		var said bytes.Buffer
		v.log = slog.New(slog.NewTextHandler(&said, nil))
		v.start()
		for _, name := range []string{"host-a", "host-b"} {
			a := v.agent(name)
			a.register()
			if _, err := a.Heartbeat(v.Context(), &api.HeartbeatRequest{Node: name, Incarnation: a.incarnation, Status: a.status, RevokedVersion: 7}); err != nil {
				t.Fatal(err)
			}
		}
		v.stop()
		if n := strings.Count(said.String(), "lifeboat revoke them again"); n != 1 {
			t.Errorf("it was said %d times, want once:\n%s", n, said.String())
		}
	})
}
