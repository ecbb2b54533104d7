package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
)

// outcome is what each side of a handshake learned.
type outcome struct {
	clientErr, serverErr error
	clientSaw, serverSaw Name
	proto                string
}

// handshake runs one over a pipe, up to the first byte from the server: only then does a client know that the server
// has accepted its certificate (RFC 8446, section 4.4.2.4 and figure 1).
func handshake(client, server *tls.Config) outcome {
	var out outcome
	// net.Pipe has no buffer: a side that refuses while the other is still writing would wait for ever.
	between := bufconn.Listen(64 << 10)
	defer between.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		far, _ := between.Accept()
		defer far.Close()
		conn := tls.Server(far, server)
		if out.serverErr = conn.Handshake(); out.serverErr != nil {
			return
		}
		out.serverSaw, _ = PeerName(conn.ConnectionState())
		_, out.serverErr = conn.Write([]byte{1})
	}()
	near, _ := between.Dial()
	conn := tls.Client(near, client)
	if out.clientErr = conn.Handshake(); out.clientErr == nil {
		out.proto = conn.ConnectionState().NegotiatedProtocol
		out.clientSaw, _ = PeerName(conn.ConnectionState())
		_, out.clientErr = io.ReadFull(conn, make([]byte, 1))
	}
	near.Close()
	<-done
	return out
}

func TestHandshakeRoles(t *testing.T) {
	dir := newCADir(t)
	roles := []Role{RoleNode, RoleCoordinator, RoleOperator, RoleApp}
	ids := map[Role]*Identity{}
	for _, r := range roles {
		ids[r] = issueFor(t, dir, Name{r, "the-" + string(r)})
	}
	for _, client := range roles {
		for _, server := range roles {
			for _, want := range roles {
				for _, allow := range roles {
					t.Run(fmt.Sprintf("%s wants %s, meets %s that allows %s", client, want, server, allow), func(t *testing.T) {
						out := handshake(
							ids[client].Client([]string{"lifeboat/1"}, Name{Role: want}),
							ids[server].Server([]string{"lifeboat/1"}, allow))
						switch {
						case server != want:
							wantErr(t, out.clientErr, fmt.Sprintf(`peer presented "%s the-%[1]s", want any %s`, server, want))
						case client != allow:
							wantErr(t, out.serverErr, fmt.Sprintf(`peer presented "%s the-%[1]s", want a certificate of role %s`, client, allow))
							if out.clientErr == nil {
								t.Error("the client was not told")
							}
						default:
							if out.clientErr != nil || out.serverErr != nil {
								t.Fatalf("got client error %v, server error %v, want none", out.clientErr, out.serverErr)
							}
							if out.clientSaw != ids[server].Name() || out.serverSaw != ids[client].Name() {
								t.Errorf("got %q seen by the client and %q by the server", out.clientSaw, out.serverSaw)
							}
							if out.proto != "lifeboat/1" {
								t.Errorf("got protocol %q, want lifeboat/1", out.proto)
							}
						}
					})
				}
			}
		}
	}
}

func TestHandshakeNames(t *testing.T) {
	dir := newCADir(t)
	a, b := issueFor(t, dir, Name{RoleNode, "host-a"}), issueFor(t, dir, Name{RoleNode, "host-b"})

	out := handshake(a.Client(nil, Name{RoleNode, "host-b"}), b.Server(nil, RoleOperator, RoleNode))
	if out.clientErr != nil || out.serverErr != nil {
		t.Errorf("got client error %v, server error %v, want none", out.clientErr, out.serverErr)
	}
	out = handshake(a.Client(nil, Name{RoleNode, "host-c"}), b.Server(nil, RoleNode))
	wantErr(t, out.clientErr, `peer presented "node host-b", want "node host-c"`)
	wantErr(t, out.serverErr, "bad certificate")

	out = handshake(a.Client(nil, Name{}), b.Server(nil, RoleNode)) // nobody in particular is nobody at all
	wantErr(t, out.clientErr, `peer presented "node host-b"`)

	out = handshake(a.Client(nil, Name{Role: RoleNode}), b.Server(nil, RoleCoordinator, RoleOperator))
	wantErr(t, out.serverErr, `peer presented "node host-a", want a certificate of role coordinator or operator`)
}

// Certificates made for a name before it was revoked are refused, whichever side shows them, and open connections with them are cut;
// certificates made afterwards are accepted.
func TestRevokedCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newCADir(t)
		stolen, b := issueFor(t, dir, Name{RoleNode, "host-a"}), issueFor(t, dir, Name{RoleNode, "host-b"})
		time.Sleep(time.Second) // certificates tell no less
		at := time.Now()
		b.Distrust(func(n Name) time.Time {
			if n == stolen.Name() {
				return at
			}
			return time.Time{}
		})
		time.Sleep(time.Second)
		renewed := issueFor(t, dir, stolen.Name())

		out := handshake(stolen.Client(nil, b.Name()), b.Server(nil, RoleNode))
		wantErr(t, out.serverErr, "certificate was revoked")
		out = handshake(b.Client(nil, stolen.Name()), stolen.Server(nil, RoleNode))
		wantErr(t, out.clientErr, "certificate was revoked")
		if err := b.Trusts(tls.ConnectionState{PeerCertificates: []*x509.Certificate{stolen.Leaf()}}); !errors.Is(err, ErrRevoked) {
			t.Errorf("a connection that is open: got %v, want %v", err, ErrRevoked)
		}
		out = handshake(renewed.Client(nil, b.Name()), b.Server(nil, RoleNode))
		if out.clientErr != nil || out.serverErr != nil {
			t.Errorf("made afterwards: got client error %v, server error %v, want none", out.clientErr, out.serverErr)
		}
	})
}

func TestHandshakeOtherCA(t *testing.T) {
	ours, theirs := newCADir(t), newCADir(t)
	n := Name{RoleNode, "host-a"}
	us, them := issueFor(t, ours, n), issueFor(t, theirs, n)

	out := handshake(us.Client(nil, n), them.Server(nil, RoleNode))
	wantErr(t, out.clientErr, `certificate is not signed by our CA: peer claims to be "node host-a", want "node host-a"`)

	// A client that trusts every server, so that only the server can refuse.
	trusting := them.Client(nil, n)
	trusting.VerifyConnection = nil
	for _, allow := range [][]Role{{RoleNode}, nil} {
		out = handshake(trusting, us.Server(nil, allow...))
		wantErr(t, out.serverErr, "not signed by our CA: peer claims to be")
		if out.clientErr == nil {
			t.Error("the client was not told")
		}
	}
}

func TestHandshakeOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newCADir(t)
		node, other := Name{RoleNode, "host-a"}, Name{RoleNode, "host-b"}
		old := issueFor(t, dir, node)
		time.Sleep(leafLife - time.Minute)
		young := issueFor(t, dir, other)
		if out := handshake(young.Client(nil, node), old.Server(nil, RoleNode)); out.clientErr != nil || out.serverErr != nil {
			t.Errorf("in its time: got client error %v, server error %v, want none", out.clientErr, out.serverErr)
		}
		time.Sleep(2 * time.Minute)
		out := handshake(young.Client(nil, node), old.Server(nil, RoleNode))
		wantErr(t, out.clientErr, `peer claims to be "node host-a"`)
		wantErr(t, out.clientErr, "certificate expired at 2000-12-31T00:00:00Z")
		out = handshake(old.Client(nil, other), young.Server(nil, RoleNode))
		wantErr(t, out.serverErr, "expired")
	})
}

func TestHandshakeWithoutCertificate(t *testing.T) {
	dir := newCADir(t)
	coordinator := issueFor(t, dir, Name{RoleCoordinator, "c1"})
	app := issueFor(t, dir, Name{RoleApp, "app-1"})
	anonymous := app.Client(nil, Name{Role: RoleCoordinator})
	anonymous.GetClientCertificate = nil

	out := handshake(anonymous, coordinator.Server(nil))
	if out.clientErr != nil || out.serverErr != nil || out.serverSaw != (Name{}) {
		t.Errorf("optional: got client error %v, server error %v, name %q, want none", out.clientErr, out.serverErr, out.serverSaw)
	}
	out = handshake(anonymous, coordinator.Server(nil, RoleApp))
	wantErr(t, out.serverErr, "client didn't provide a certificate")

	out = handshake(app.Client(nil, Name{Role: RoleCoordinator}), coordinator.Server(nil))
	if out.serverErr != nil || out.serverSaw != app.Name() {
		t.Errorf("optional but given: got error %v, name %q, want %q", out.serverErr, out.serverSaw, app.Name())
	}

	cert, key := odd(t, dir, uris("spiffe://fleet/host-a"))
	pair, err := readPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	nameless := &Identity{}
	nameless.held.Store(&held{pair, app.held.Load().roots})
	out = handshake(nameless.Client(nil, Name{Role: RoleCoordinator}), coordinator.Server(nil))
	wantErr(t, out.serverErr, "peer presented no name: certificate has no role")
}

func TestHandshakeOldTLS(t *testing.T) {
	dir := newCADir(t)
	a := issueFor(t, dir, Name{RoleNode, "host-a"})
	old := a.Client(nil, a.Name())
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	out := handshake(old, a.Server(nil, RoleNode))
	wantErr(t, out.serverErr, "unsupported versions")
}

func TestPeerNameBeforeHandshake(t *testing.T) {
	_, err := PeerName(tls.ConnectionState{})
	wantErr(t, err, "handshake is not complete")
}

func TestDev(t *testing.T) {
	node, coordinator := Dev(Name{RoleNode, "host-a"}), Dev(Name{RoleCoordinator, "c1"})
	check := func(t *testing.T) {
		// A second one, as another process would make it.
		out := handshake(node.Client([]string{"h2"}, coordinator.Name()), Dev(coordinator.Name()).Server([]string{"h2"}, RoleNode))
		if out.clientErr != nil || out.serverErr != nil || out.serverSaw != node.Name() {
			t.Errorf("got client error %v, server error %v, name %q, want %q", out.clientErr, out.serverErr, out.serverSaw, node.Name())
		}
	}
	t.Run("now", check)
	t.Run("in a bubble", func(t *testing.T) { synctest.Test(t, check) })

	out := handshake(node.Client(nil, Name{RoleCoordinator, "c2"}), coordinator.Server(nil, RoleNode))
	wantErr(t, out.clientErr, `peer presented "coordinator c1", want "coordinator c2"`)

	// A fleet with its own certificates refuses the key that everyone knows.
	dir := newCADir(t)
	careful := issueFor(t, dir, Name{RoleNode, "host-b"})
	out = handshake(careful.Client(nil, coordinator.Name()), coordinator.Server(nil, RoleNode))
	wantErr(t, out.clientErr, "not signed by our CA")
	if _, err := LoadDir(filepath.Join(dir, "none")); err == nil {
		t.Error("got an identity from nowhere")
	}
}

// Settings that none of the handshakes above would miss.
func TestConfigurationOfBothSides(t *testing.T) {
	id := Dev(Name{RoleNode, "host-a"})
	for side, c := range map[string]*tls.Config{"client": id.Client(nil, id.Name()), "server": id.Server(nil, RoleNode)} {
		if c.MinVersion != tls.VersionTLS13 {
			t.Errorf("%s: got least version %#x, want TLS 1.3", side, c.MinVersion)
		}
		if !c.DynamicRecordSizingDisabled {
			t.Errorf("%s: blocks would begin in small records", side)
		}
	}
	if !id.Server(nil, RoleNode).SessionTicketsDisabled {
		t.Error("a session could outlive its certificate")
	}
}
