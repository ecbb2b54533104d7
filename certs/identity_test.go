package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// odd makes a certificate that Issue would not, as dir/odd.pem and dir/odd.key.
func odd(t *testing.T, dir string, change func(*x509.Certificate)) (certFile, keyFile string) {
	t.Helper()
	ca, err := readPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	sign, err := signer(ca)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := leafTemplate(Name{RoleNode, "host-a"}, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), sign)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "odd.pem"), filepath.Join(dir, "odd.key")
	if err := writeKey(keyFile, key, os.Rename); err != nil {
		t.Fatal(err)
	}
	if err := writeCert(certFile, der, os.Rename); err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile
}

func uris(raw ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.URIs = nil
		for _, r := range raw {
			u, err := url.Parse(r)
			if err != nil {
				panic(err)
			}
			c.URIs = append(c.URIs, u)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	dir, other := newCADir(t), newCADir(t)
	ca := filepath.Join(dir, "ca.pem")
	certA, keyA, err := Issue(dir, Name{RoleNode, "host-a"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, keyB, err := Issue(dir, Name{RoleNode, "host-b"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, content string, mode os.FileMode) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		return file
	}
	key, err := os.ReadFile(keyA)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	oneCA := string(whole)
	for _, c := range []struct{ ca, cert, key, want string }{
		{"/none/ca.pem", certA, keyA, "read CA: open /none/ca.pem: no such file"},
		{ca, "/none/a.pem", keyA, "read certificate: open /none/a.pem: no such file"},
		{ca, certA, "/none/a.key", "read key: open /none/a.key: no such file"},
		{certA, certA, keyA, "is not of a CA"},
		{write("ca.pem", "hello", 0o644), certA, keyA, "no certificate in PEM form"},
		{write("ca.pem", strings.Repeat("x", maxFile+1), 0o644), certA, keyA, "more than"},
		{ca, keyA, keyA, "no certificate in PEM form"},
		{write("ca.pem", oneCA+oneCA[:len(oneCA)/2], 0o644), certA, keyA, "2 certificates begin in it, 1 can be read: was it cut short"},
		{write("ca2.pem", strings.TrimSpace(oneCA)+oneCA+oneCA, 0o644), certA, keyA, "3 certificates begin in it, 1 can be read"},
		{ca, certA, keyB, "private key does not match public key"},
		{ca, certA, write("a.key", "hello", 0o600), "use key"},
		{ca, certA, write("a.key", string(key), 0o644), "has mode 0644, others may use it: chmod 600"},
		{ca, certA, write("a.key", string(key), 0o620), "has mode 0620"},
		{filepath.Join(other, "ca.pem"), certA, keyA, "certificate is not signed by our CA: see " + other},
		{ca, ca, filepath.Join(dir, "ca.key"), "has no role"},
	} {
		_, err := Load(c.ca, c.cert, c.key)
		wantErr(t, err, c.want)
	}
	if _, err := Load(ca, certA, write("a.key", string(key), 0o640)); err != nil {
		t.Errorf("key readable by the daemon's group: %v", err)
	}
}

func TestLoadRefusesOddCertificates(t *testing.T) {
	dir := newCADir(t)
	for _, c := range []struct {
		change func(*x509.Certificate)
		want   string
	}{
		{uris(), "has no role"},
		{uris("spiffe://fleet/node/host-a"), "has no role"},
		{uris("lifeboat://node/host-a", "lifeboat://operator/eve"), "2 roles"},
		{uris("lifeboat://root/host-a"), `is "root"`},
		{uris("lifeboat://node/"), "name must not be empty"},
		{uris("lifeboat://node/a/b"), "must be of letters"},
		{uris("lifeboat://node//host-a"), "must be of letters"},
		{uris("lifeboat://node/host%2Da"), "want it spelled"},
		{uris("lifeboat://node:1/host-a"), `is "node:1"`},
		{uris("lifeboat://me@node/host-a"), "want it spelled"},
		{uris("lifeboat://node/host-a?x=1"), "want it spelled"},
		{uris("lifeboat://node/host-a#x"), "want it spelled"},
		{func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }, "check the clock"},
		{func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, "expired at"},
		{func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, "incompatible key usage"},
	} {
		cert, key := odd(t, dir, c.change)
		_, err := Load(filepath.Join(dir, "ca.pem"), cert, key)
		wantErr(t, err, c.want)
	}
	cert, key := odd(t, dir, uris("spiffe://fleet/node/host-a", "lifeboat://node/host-a"))
	if _, err := Load(filepath.Join(dir, "ca.pem"), cert, key); err != nil {
		t.Errorf("a URI of another scheme beside the role: %v", err)
	}
}

func TestLoadFollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newCADir(t)
		cert, key, err := Issue(dir, Name{RoleNode, "host-a"}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(leafLife + time.Second)
		_, err = Load(filepath.Join(dir, "ca.pem"), cert, key)
		wantErr(t, err, "expired at 2000-12-31T00:00:00Z, now it is 2000-12-31T00:00:01Z: issue a new one (lifeboat tls issue --dir "+dir+" --node host-a)")
		if err := os.Rename(filepath.Join(dir, "ca.key"), filepath.Join(t.TempDir(), "ca.key")); err != nil { // as it should be on a node
			t.Fatal(err)
		}
		_, err = Load(filepath.Join(dir, "ca.pem"), cert, key)
		wantErr(t, err, "(lifeboat tls issue --dir DIR --node host-a)")
	})
}

// FuzzNameIn checks that a URI is a name only in the spelling that we would give it.
func FuzzNameIn(f *testing.F) {
	for _, s := range []string{"lifeboat://node/host-a", "lifeboat://node/%2e%2e", "lifeboat:node/x", "LIFEBOAT://app/x", "lifeboat://node/a?b#c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil {
			return
		}
		n, err := nameIn(&x509.Certificate{URIs: []*url.URL{u}})
		if err != nil {
			return
		}
		if err := n.Check(); err != nil {
			t.Errorf("%q names %q, which is refused: %v", raw, n, err)
		}
		raw = strings.TrimSuffix(raw, "#") // url.Parse forgets an empty fragment
		if got := n.uri().String(); !strings.EqualFold(got[:len(scheme)], raw[:len(scheme)]) || got[len(scheme):] != raw[len(scheme):] {
			t.Errorf("%q names %q, which is spelled %q", raw, n, got)
		}
	})
}
