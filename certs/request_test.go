package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func authority(t *testing.T, dir string) *Authority {
	t.Helper()
	a, err := LoadAuthority(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A machine makes a key, gets a certificate for it, and another before the first one ends. It shows the new one without a restart, and its
// connections go on.
func TestJoinAndRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCADir(t)
		a := authority(t, ca)
		node, dir := Name{RoleNode, "host-a"}, filepath.Join(t.TempDir(), "tls")
		at := func(name string) string { return filepath.Join(dir, name) }
		obtain := func(life time.Duration) {
			t.Helper()
			key, err := NewKey(at("node.key"))
			if err != nil {
				t.Fatal(err)
			}
			request, err := Request(key)
			if err != nil {
				t.Fatal(err)
			}
			cert, err := a.Sign(request, node, life, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := Write(at("ca.pem"), at("node.pem"), a.PEM(), cert); err != nil {
				t.Fatal(err)
			}
		}
		obtain(30 * 24 * time.Hour)
		us, err := Load(at("ca.pem"), at("node.pem"), at("node.key"))
		if err != nil {
			t.Fatal(err)
		}
		peer := issueFor(t, ca, Name{RoleNode, "host-b"})
		server, client := us.Server(nil, RoleNode), us.Client(nil, peer.Name())
		talk := func() {
			t.Helper()
			if out := handshake(peer.Client(nil, node), server); out.clientErr != nil || out.serverErr != nil {
				t.Errorf("dialled: got errors %v and %v, want none", out.clientErr, out.serverErr)
			}
			if out := handshake(client, peer.Server(nil, RoleNode)); out.clientErr != nil || out.serverErr != nil || out.serverSaw != node {
				t.Errorf("dialling: got errors %v and %v as %q, want none as %q", out.clientErr, out.serverErr, out.serverSaw, node)
			}
		}
		talk()
		time.Sleep(20 * 24 * time.Hour)
		obtain(30 * 24 * time.Hour)
		if err := us.Reload(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * 24 * time.Hour) // the first one's time is over
		talk()
		if got, want := us.Expires(), time.Now().Add(10*24*time.Hour); !got.Equal(want) {
			t.Errorf("got valid until %s, want %s", got, want)
		}
	})
}

func TestReloadKeepsWhatIsGood(t *testing.T) {
	ca := newCADir(t)
	us := issueFor(t, ca, Name{RoleNode, "host-a"})
	until := us.Expires()
	file := filepath.Join(ca, "host-a.pem")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other := issueFor(t, ca, Name{RoleNode, "host-b"})
	foreign, err := os.ReadFile(filepath.Join(ca, "host-b.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for what, data := range map[string][]byte{"half a certificate": good[:len(good)/2], "of another key": foreign} {
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := us.Reload(); err == nil {
			t.Errorf("%s: got no error, want one", what)
		}
	}
	if !us.Expires().Equal(until) {
		t.Errorf("got valid until %s, want %s as before", us.Expires(), until)
	}
	// A valid certificate and key of another name are refused: a process does not change its name.
	us.files.cert, us.files.key = other.files.cert, other.files.key
	wantErr(t, us.Reload(), `is of "node host-b" now, and this process is "node host-a"`)
}

// While one CA replaces another, a server names both to clients. A client that chooses its certificate by that list, as Java's do, would else
// not show one of the new CA until the server restarts.
func TestReloadTellsOfTheCAThatFollows(t *testing.T) {
	before, after := newCADir(t), newCADir(t)
	us := issueFor(t, before, Name{RoleCoordinator, "c1"})
	server := us.Server([]string{"h2"})
	open := us.Door(us.Server([]string{"h2"}), "join")
	told := func(server *tls.Config) (names int) {
		t.Helper()
		client := Unverified([]string{"h2"})
		client.GetClientCertificate = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			names = len(asked.AcceptableCAs)
			return &us.held.Load().cert, nil
		}
		if out := handshake(client, server); out.clientErr != nil || out.serverErr != nil || out.proto != "h2" {
			t.Errorf("got errors %v and %v and protocol %q, want none and h2", out.clientErr, out.serverErr, out.proto)
		}
		return names
	}
	if n := told(server); n != 1 {
		t.Errorf("got %d CAs, want 1", n)
	}
	both, err := os.OpenFile(us.files.ca, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer both.Close()
	if _, err := both.Write(authority(t, after).PEM()); err != nil {
		t.Fatal(err)
	}
	if err := us.Reload(); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]*tls.Config{"server": server, "behind a door": open} {
		if n := told(c); n != 2 {
			t.Errorf("%s: got %d CAs once one follows the other, want 2", what, n)
		}
	}
}

// While one CA replaces another, each new certificate comes with both CAs: a renewal that took one away would cut the machine off from those
// with a certificate of that CA.
func TestRenewalLeavesTheCAThatFollows(t *testing.T) {
	before, after := newCADir(t), newCADir(t)
	old := issueFor(t, before, Name{RoleNode, "host-b"})
	both := append(authority(t, after).PEM(), authority(t, before).PEM()...)
	if err := os.WriteFile(filepath.Join(after, "ca.pem"), both, 0o644); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	key, err := NewKey(at("node.key"))
	if err != nil {
		t.Fatal(err)
	}
	request, err := Request(key)
	if err != nil {
		t.Fatal(err)
	}
	a := authority(t, after)
	cert, err := a.Sign(request, Name{RoleNode, "host-a"}, time.Hour, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(at("ca.pem"), at("node.pem"), a.PEM(), cert); err != nil {
		t.Fatal(err)
	}
	us, err := Load(at("ca.pem"), at("node.pem"), at("node.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old.files.ca, both, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := old.Reload(); err != nil {
		t.Fatal(err)
	}
	if out := handshake(old.Client(nil, us.Name()), us.Server(nil, RoleNode)); out.clientErr != nil || out.serverErr != nil {
		t.Errorf("from a node with a certificate of the CA before: got errors %v and %v, want none", out.clientErr, out.serverErr)
	}
}

func TestSignRefuses(t *testing.T) {
	a := authority(t, newCADir(t))
	key, err := NewKey(filepath.Join(t.TempDir(), "node.key"))
	if err != nil {
		t.Fatal(err)
	}
	request, err := Request(key)
	if err != nil {
		t.Fatal(err)
	}
	forged := append([]byte(nil), request...)
	forged[len(forged)-1] ^= 1
	big, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	odd, err := Request(big)
	if err != nil {
		t.Fatal(err)
	}
	node := Name{RoleNode, "host-a"}
	for _, c := range []struct {
		what    string
		request []byte
		name    Name
		want    string
	}{
		{"nothing", nil, node, "request for a certificate"},
		{"garbage", []byte("-----BEGIN"), node, "request for a certificate"},
		{"a signature by another", forged, node, "does not have the key"},
		{"another kind of key", odd, node, "want ECDSA on P-256"},
		{"too much", make([]byte, 1<<20), node, "at most 8192"},
		{"no name", request, Name{RoleNode, "../x"}, "must be of letters"},
	} {
		_, err := a.Sign(c.request, c.name, time.Hour, nil, nil)
		if err == nil {
			t.Errorf("%s: got a certificate", c.what)
			continue
		}
		wantErr(t, err, c.want)
	}
	// Names in the request are ignored.
	cheeky, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{"everything.example"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := a.Sign(cheeky, node, 100*365*24*time.Hour, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(cert)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if len(leaf.DNSNames) != 0 || leaf.IsCA || leaf.NotAfter.After(a.ca.NotAfter) {
		t.Errorf("got a certificate for %v, CA %t, until %s", leaf.DNSNames, leaf.IsCA, leaf.NotAfter)
	}
}

func TestToken(t *testing.T) {
	dir, other := newCADir(t), newCADir(t)
	ours, theirs := authority(t, dir), authority(t, other)
	token := NewToken(ours.Pin())
	read, err := ParseToken(token.String() + "\n")
	if err != nil || read != token {
		t.Fatalf("got %v (%v), want %v", read, err, token)
	}
	if !read.Is(token.Sum()) || NewToken(ours.Pin()).Is(token.Sum()) {
		t.Error("the secret is not told from another one's")
	}
	// An attacker in between adds a CA to ours: only ours is picked.
	picked, err := token.Pin.Pick(append(append([]byte(nil), theirs.PEM()...), ours.PEM()...))
	if err != nil || string(picked) != string(ours.PEM()) {
		t.Errorf("got %q (%v), want our CA alone", picked, err)
	}
	_, err = token.Pin.Pick(theirs.PEM())
	wantErr(t, err, "another fleet")

	// The newcomer talks only to a coordinator of the pinned CA.
	config, err := Newcomer(picked, []string{"join"}, RoleCoordinator)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		id   *Identity
		want string
	}{
		"our coordinator":    {issueFor(t, dir, Name{RoleCoordinator, "c1"}), ""},
		"a node of ours":     {issueFor(t, dir, Name{RoleNode, "host-a"}), "want any coordinator"},
		"another fleet's":    {issueFor(t, other, Name{RoleCoordinator, "c1"}), "not signed by our CA"},
		"an insecure one's ": {Dev(Name{RoleCoordinator, "c1"}), "not signed by our CA"},
	} {
		out := handshake(config, c.id.Door(c.id.Server([]string{"h2"}, RoleNode), "join"))
		switch {
		case c.want == "" && (out.clientErr != nil || out.serverErr != nil):
			t.Errorf("%s: got errors %v and %v, want none", name, out.clientErr, out.serverErr)
		case c.want != "":
			wantErr(t, out.clientErr, c.want)
		}
	}
	// A client that does not negotiate the protocol for joining needs a certificate.
	config.NextProtos = []string{"join", "h2"}
	id := issueFor(t, dir, Name{RoleCoordinator, "c2"})
	out := handshake(config, id.Door(id.Server([]string{"h2"}, RoleNode), "join"))
	wantErr(t, out.serverErr, "client didn't provide a certificate")
}

func FuzzParseToken(f *testing.F) {
	f.Add(NewToken(Pin{1}).String())
	f.Add("lifeboat1.0123456789ab..")
	f.Add("....")
	f.Fuzz(func(t *testing.T, s string) {
		token, err := ParseToken(s)
		if err != nil {
			return
		}
		again, err := ParseToken(token.String())
		if err != nil || again != token {
			t.Errorf("%q: got %v (%v), want %v", s, again, err, token)
		}
	})
}
