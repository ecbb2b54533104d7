package coordinator

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/enrol"
)

// inWalledTown is a town with a CA of its own, whose coordinator lets machines join.
func inWalledTown(t *testing.T, tell func(*town)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v := &town{T: t, cfg: Default(), pki: filepath.Join(t.TempDir(), "pki")}
		if err := certs.InitCA(v.pki); err != nil {
			t.Fatal(err)
		}
		v.cfg.Name, v.cfg.DataDir = "c", t.TempDir()
		v.cfg.TLS.CA, v.cfg.Issue.CAKey = filepath.Join(v.pki, "ca.pem"), filepath.Join(v.pki, "ca.key")
		v.cfg.TLS.Cert, v.cfg.TLS.Key = filepath.Join(v.pki, "c.pem"), filepath.Join(v.pki, "c.key")
		v.start()
		defer func() { v.stop() }()
		tell(v)
		time.Sleep(goodbyes)
	})
}

// goodbyes is the time for both ends of a pipe to close their TLS connection: neither may be reading while the other sends its alert, for 5 s
// at most (crypto/tls, Conn.Close). A server that is closed meanwhile waits for that with its lock held, which stops the bubble's time.
const goodbyes = 10 * time.Second

func (v *town) token(r *api.CreateTokenRequest) string {
	v.Helper()
	reply, err := v.operator().CreateToken(v.Context(), r)
	if err != nil {
		v.Fatal(err)
	}
	return reply.Token
}

// joins has a machine with the directory dir join as name.
func (v *town) joins(dir, name, token string) error {
	v.Helper()
	t, err := certs.ParseToken(token)
	if err != nil {
		v.Fatal(err)
	}
	_, err = enrol.Join(v.Context(), enrol.Config{
		Coordinators: []string{"c:7411"}, Name: name, Pin: t.Pin, Token: token, Files: enrol.In(dir),
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return v.dial(ctx) },
	})
	return err
}

// as returns the agent of the node that joined in dir.
func (v *town) as(dir, name string) *agent {
	v.Helper()
	f := enrol.In(dir)
	id, err := certs.Load(f.CA, f.Cert, f.Key)
	if err != nil {
		v.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///c", grpc.WithTransportCredentials(credentials.NewTLS(id.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator}))),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return v.dial(ctx) }), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		v.Fatal(err)
	}
	v.Cleanup(func() { conn.Close() })
	return &agent{town: v, name: name, incarnation: "inc-of-" + dir, MembershipClient: api.NewMembershipClient(conn), status: &api.Status{RoomBytes: 1 << 30}}
}

func wantRefusal(t *testing.T, err error, part string) {
	t.Helper()
	if no, ok := errors.AsType[enrol.Refused](err); !ok || !strings.Contains(no.Why, part) {
		t.Errorf("got error %v, want a refusal with %q", err, part)
	}
}

// Two machines join with a token for two, over a restart of the coordinator; a third is refused. A machine that asks again because the answer
// got lost uses nothing up. A machine that joined may register at once.
func TestMachinesJoin(t *testing.T) {
	inWalledTown(t, func(v *town) {
		token := v.token(&api.CreateTokenRequest{Uses: 2, Reason: "the new rack"})
		a, b := v.TempDir(), v.TempDir()
		if err := v.joins(a, "host-a", token); err != nil {
			v.Fatal(err)
		}
		time.Sleep(goodbyes)
		v.restart()
		for range 2 {
			if err := v.joins(b, "host-b", token); err != nil {
				v.Fatal(err)
			}
		}
		wantRefusal(v.T, v.joins(v.TempDir(), "host-c", token), "used up")
		node := v.as(a, "host-a")
		node.register()
		if _, err := node.Heartbeat(v.Context(), &api.HeartbeatRequest{Node: "host-b", Incarnation: "x"}); status.Code(err) != codes.PermissionDenied {
			v.Errorf("host-a speaks for host-b: got error %v, want PermissionDenied", err)
		}
		audit, err := v.operator().ListAudit(v.Context(), &api.ListAuditRequest{})
		if err != nil {
			v.Fatal(err)
		}
		reply, err := audit.Recv()
		if err != nil || len(reply.Records) != 1 || reply.Records[0].Asked != "token create" || reply.Records[0].Reason != "the new rack" {
			v.Errorf("got audit %v (%v), want that the token was created, and why", reply, err)
		}
	})
}

// A token is for a time, a name, a role and this fleet, and may be revoked. Only operators make tokens.
func TestTokensAreBounded(t *testing.T) {
	inWalledTown(t, func(v *town) {
		op := v.operator()
		short := v.token(&api.CreateTokenRequest{Life: durationpb.New(time.Minute)})
		named := v.token(&api.CreateTokenRequest{Name: "host-a"})
		revoked := v.token(&api.CreateTokenRequest{})
		reader := v.token(&api.CreateTokenRequest{Role: "app", Name: "etl"})

		wantRefusal(v.T, v.joins(v.TempDir(), "host-b", named), "another name")
		wantRefusal(v.T, v.joins(v.TempDir(), "host-b", reader), "another name")
		id, _, _ := strings.Cut(strings.TrimPrefix(revoked, "lifeboat1."), ".")
		if _, err := op.RevokeToken(v.Context(), &api.RevokeTokenRequest{Id: id}); err != nil {
			v.Fatal(err)
		}
		wantRefusal(v.T, v.joins(v.TempDir(), "host-b", revoked), "revoked")
		time.Sleep(time.Minute)
		wantRefusal(v.T, v.joins(v.TempDir(), "host-b", short), "expired")

		guess := certs.NewToken(certs.Pin{})
		real, err := certs.ParseToken(named)
		if err != nil {
			v.Fatal(err)
		}
		guess.ID, guess.Pin = real.ID, real.Pin
		wantRefusal(v.T, v.joins(v.TempDir(), "host-a", guess.String()), "not known")

		left, err := op.ListTokens(v.Context(), &api.ListTokensRequest{})
		for _, token := range left.GetTokens() {
			if token.GetBy() != "operator:eve" { // as in events and the audit
				t.Errorf("token %s was made by %q", token.GetId(), token.GetBy())
			}
		}
		if err != nil || len(left.Tokens) != 2 {
			v.Errorf("got tokens %v (%v), want the two that are good", left, err)
		}
		for what, r := range map[string]*api.CreateTokenRequest{
			"any operator": {Role: "operator"}, "no role": {Role: "king"}, "no uses": {Uses: -1}, "for ever": {Life: durationpb.New(maxSpan)},
			"a bad name": {Name: "../x"},
		} {
			if _, err := op.CreateToken(v.Context(), r); status.Code(err) != codes.InvalidArgument {
				v.Errorf("a token for %s: got error %v, want InvalidArgument", what, err)
			}
		}
		asNode := api.NewOperatorClient(v.conn(certs.RoleNode, "host-z"))
		if _, err := asNode.CreateToken(v.Context(), &api.CreateTokenRequest{}); status.Code(err) != codes.PermissionDenied {
			v.Errorf("a node makes a token: got error %v, want PermissionDenied", err)
		}
	})
}

// No two machines have one name: a second machine is refused while the first is alive, and takes its place once that is gone.
func TestNamesAreTakenOnce(t *testing.T) {
	inWalledTown(t, func(v *town) {
		token := v.token(&api.CreateTokenRequest{Life: durationpb.New(24 * time.Hour)})
		first, second := v.TempDir(), v.TempDir()
		if err := v.joins(first, "host-a", token); err != nil {
			v.Fatal(err)
		}
		node := v.as(first, "host-a")
		node.register()
		wantRefusal(v.T, v.joins(second, "host-a", token), "host-a is ACTIVE")
		if err := v.joins(first, "host-a", token); err != nil {
			v.Errorf("the same machine asks again: %v", err)
		}
		time.Sleep(2 * v.cfg.Lease) // the first is never heard again
		if err := v.joins(second, "host-a", token); err != nil {
			v.Errorf("the name of a machine that is gone: %v", err)
		}
	})
}

// A certificate is renewed for the key that it was made for, and for no other.
func TestRenew(t *testing.T) {
	inWalledTown(t, func(v *town) {
		dir := v.TempDir()
		if err := v.joins(dir, "host-a", v.token(&api.CreateTokenRequest{})); err != nil {
			v.Fatal(err)
		}
		node := v.as(dir, "host-a")
		request := func(file string) []byte {
			key, err := certs.NewKey(file)
			if err != nil {
				v.Fatal(err)
			}
			r, err := certs.Request(key)
			if err != nil {
				v.Fatal(err)
			}
			return r
		}
		time.Sleep(time.Minute)
		reply, err := node.Renew(v.Context(), &api.RenewRequest{Request: request(enrol.In(dir).Key)})
		if err != nil {
			v.Fatal(err)
		}
		f := enrol.In(dir)
		if err := certs.Write(f.CA, f.Cert, reply.Ca, reply.Certificate); err != nil {
			v.Fatal(err)
		}
		id, err := certs.Load(f.CA, f.Cert, f.Key)
		if err != nil {
			v.Fatal(err)
		}
		if got, want := time.Until(id.Expires()), v.cfg.Issue.Life; got < want-time.Second {
			v.Errorf("got %s left, want all of %s again", got, want)
		}
		_, err = node.Renew(v.Context(), &api.RenewRequest{Request: request(filepath.Join(v.TempDir(), "other.key"))})
		if status.Code(err) != codes.PermissionDenied {
			v.Errorf("another key: got error %v, want PermissionDenied", err)
		}
	})
}

// lone is the fleet of a coordinator that is one of several by its settings, and the only member so far.
func lone(t *testing.T) *fleet {
	cfg := Default()
	cfg.Name, cfg.DataDir, cfg.Peers = "c1", t.TempDir(), peersNamed(1)
	id := certs.Dev(certs.Name{Role: certs.RoleCoordinator, Name: "c1"})
	f, err := openFleet(cfg, newStreams(id, cfg.Peers[0].Address, nowhere), Deps{Identity: id, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// during has run go on until the test ends.
func during(t *testing.T, run func(context.Context) error) {
	ended := make(chan error, 1)
	go func() { ended <- run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A machine that joins is told the coordinators that are members now, not those in the first settings.
func TestWhoJoinsHearsOfTheMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lone(t)
		during(t, f.govern)
		time.Sleep(5 * time.Second)
		if err := f.ledger.raft.AddNonvoter("c4", "c4:7411", 0, 0).Error(); err != nil {
			t.Fatal(err)
		}
		if got, want := f.ledger.coordinators(), []string{f.cfg.Peers[0].Address, "c4:7411"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A token for any number of machines may leak: after a first burst the rate of joins is bounded, and a machine that is refused asks again.
// A machine that has joined already and asks again is not counted.
func TestMachinesThatJoinAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Default()
		cfg.Name, cfg.DataDir = "c", t.TempDir()
		p := newPorch(opened(t, cfg), nil)
		token := &registry.JoinToken{ID: "x", Role: certs.RoleNode, Uses: -1}
		if _, err := p.quotas.do(registry.Command{Do: registry.DoPass, Pass: &registry.Pass{Token: token, Life: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		joins := func(name string) error {
			return p.write(&registry.Joining{Token: token.ID, Name: certs.Name{Role: certs.RoleNode, Name: name}, Key: "key of " + name})
		}
		p.quotas.take("token x", (writesAtOnce-1)*writesEvery, time.Now()) // others have joined
		if err := joins("a"); err != nil {
			t.Errorf("the last at once: %v", err)
		}
		if err := joins("b"); !errors.Is(err, errManyJoin) {
			t.Errorf("one more: got %v, want %v", err, errManyJoin)
		}
		time.Sleep(joinEvery)
		if err := joins("b"); err != nil {
			t.Errorf("a moment later: %v", err)
		}
		time.Sleep(joinEvery)
		for range 2 {
			if err := joins("b"); err != nil {
				t.Errorf("again: %v", err)
			}
		}
	})
}

// A machine without the right to join may ask as often as it likes, and is logged once in a while.
func TestMachinesThatAreNotLetInAreToldOfOnce(t *testing.T) {
	cfg := Default()
	cfg.Name, cfg.DataDir = "c", t.TempDir()
	p := newPorch(opened(t, cfg), nil)
	var said bytes.Buffer
	p.log = slog.New(slog.NewTextHandler(&said, nil))
	for range 3 {
		w := httptest.NewRecorder()
		p.join(w, httptest.NewRequest(http.MethodPost, "/join", strings.NewReader("{}")))
		if w.Code == http.StatusOK {
			t.Errorf("it was let in")
		}
	}
	if n := strings.Count(said.String(), "was not let in"); n != 1 {
		t.Errorf("%d lines tell of it, want one:\n%s", n, &said)
	}
}
