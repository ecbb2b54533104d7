package certs

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func newCADir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pki")
	if err := InitCA(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func issueFor(t *testing.T, dir string, n Name) *Identity {
	t.Helper()
	cert, key, err := Issue(dir, n, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	id, err := Load(filepath.Join(dir, "ca.pem"), cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func wantErr(t *testing.T, err error, part string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("got no error, want one with %q", part)
	case !strings.Contains(err.Error(), part):
		t.Errorf("got error %q, want one with %q", err, part)
	}
}

func TestInitCA(t *testing.T) {
	dir := newCADir(t)
	var names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		want := os.FileMode(0o644)
		if filepath.Ext(e.Name()) == ".key" {
			want = 0o600
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s: got mode %04o, want %04o", e.Name(), got, want)
		}
	}
	if want := []string{"ca.key", "ca.pem", "operator.key", "operator.pem"}; !slices.Equal(names, want) {
		t.Errorf("got files %v, want %v", names, want)
	}
	op, err := LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := op.Name(), (Name{RoleOperator, "operator"}); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestInitCANeverReplaces(t *testing.T) {
	for _, kept := range []string{"ca.pem", "ca.key"} {
		dir := newCADir(t)
		for _, file := range []string{"ca.pem", "ca.key"} {
			if file != kept {
				if err := os.Remove(filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
			}
		}
		before, err := os.ReadFile(filepath.Join(dir, kept))
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, InitCA(dir), kept+" exists")
		after, err := os.ReadFile(filepath.Join(dir, kept))
		if err != nil {
			t.Fatal(err)
		}
		if string(before) != string(after) {
			t.Errorf("%s was replaced", kept)
		}
	}
}

func TestIssue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands still while the certificate is made
		dir := newCADir(t)
		n := Name{RoleNode, "host-a"}
		certFile, keyFile, err := Issue(dir, n, []net.IP{net.IPv4(10, 0, 0, 1)}, []string{"host-a.example"})
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(dir, "host-a.pem"); certFile != want {
			t.Errorf("got certificate %s, want %s", certFile, want)
		}
		if info, err := os.Stat(keyFile); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("got key mode %v (%v), want 0600", info.Mode(), err)
		}
		id, err := Load(filepath.Join(dir, "ca.pem"), certFile, keyFile)
		if err != nil {
			t.Fatal(err)
		}
		leaf := id.held.Load().cert.Leaf
		if got, want := leaf.URIs[0].String(), "lifeboat://node/host-a"; got != want || len(leaf.URIs) != 1 {
			t.Errorf("got URIs %v, want only %s", leaf.URIs, want)
		}
		if err := leaf.VerifyHostname("10.0.0.1"); err != nil {
			t.Error(err)
		}
		if err := leaf.VerifyHostname("host-a.example"); err != nil {
			t.Error(err)
		}
		if leaf.IsCA || leaf.KeyUsage&x509.KeyUsageCertSign != 0 {
			t.Error("the certificate may sign others")
		}
		if got, want := leaf.NotBefore, time.Now().Add(-time.Hour); !got.Equal(want) {
			t.Errorf("got valid from %s, want %s", got, want)
		}
		if got, want := id.Expires(), time.Now().Add(365*24*time.Hour); !got.Equal(want) {
			t.Errorf("got valid until %s, want %s", got, want)
		}

		time.Sleep(9*365*24*time.Hour + 200*24*time.Hour) // the CA has less than a leaf's life left
		renewed := issueFor(t, dir, n)
		if got, least := renewed.Expires(), leaf.NotAfter; !got.After(least) {
			t.Errorf("got a renewed certificate until %s, want later than %s", got, least)
		}
		ca, err := ReadCertificates(filepath.Join(dir, "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		if renewed.Expires().After(ca[0].NotAfter) {
			t.Errorf("got valid until %s, after its CA's %s", renewed.Expires(), ca[0].NotAfter)
		}
		time.Sleep(365 * 24 * time.Hour)
		_, _, err = Issue(dir, n, nil, nil)
		wantErr(t, err, "no CA in its time")
	})
}

func TestIssueRefuses(t *testing.T) {
	dir := newCADir(t)
	issueFor(t, dir, Name{RoleNode, "host-a"})
	for _, c := range []struct {
		name Name
		want string
	}{
		{Name{RoleNode, ""}, "name must not be empty"},
		{Name{RoleNode, "../host-b"}, "must be of letters, digits"},
		{Name{RoleNode, ".host"}, "a letter or a digit first"},
		{Name{RoleNode, "host b"}, "must be of letters, digits"},
		{Name{RoleNode, "höst"}, "must be of letters, digits"},
		{Name{RoleNode, strings.Repeat("a", 129)}, "at most 128"},
		{Name{"admin", "x"}, `role must be node, coordinator, operator or app, is "admin"`},
		{Name{"", "x"}, `is ""`},
		{Name{RoleOperator, "ca"}, "belongs to files of the CA"},
		{Name{RoleNode, "operator"}, "belongs to files of the CA"},
		{Name{RoleCoordinator, "host-a"}, `is the certificate of "node host-a"`},
	} {
		_, _, err := Issue(dir, c.name, nil, nil)
		wantErr(t, err, c.want)
	}
	_, _, err := Issue(t.TempDir(), Name{RoleNode, "host-b"}, nil, nil)
	wantErr(t, err, "ca.pem: no such file")

	if err := os.Chmod(filepath.Join(dir, "ca.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, _, err = Issue(dir, Name{RoleNode, "host-b"}, nil, nil)
	wantErr(t, err, "chmod 600")
}
