package agent

import (
	"path/filepath"
	"testing"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/config"
)

// Without a name in the settings the certificate's counts: a host that was renamed stays the same node.
func TestCertificateNamesTheNode(t *testing.T) {
	c := settings(t)
	c.Node.Name = ""
	dir := t.TempDir()
	if err := certs.InitCA(dir); err != nil {
		t.Fatal(err)
	}
	cert, key, err := certs.Issue(dir, certs.Name{Role: certs.RoleNode, Name: "as-it-was"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.TLS = config.TLS{CA: filepath.Join(dir, "ca.pem"), Cert: cert, Key: key}
	c.Validate(func(key string, value any, bound, remedy string) {
		t.Errorf("%s: %v: %s: %s", key, value, bound, remedy)
	})
	id, err := c.Identity()
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(t.Context(), c, Deps{Identity: id})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	if got := a.cfg.Node.Name; got != "as-it-was" {
		t.Errorf("the node is %q, want as-it-was", got)
	}
	if left := a.Reload(c); len(left) != 0 {
		t.Errorf("the same settings need a restart for %v, want nothing", left)
	}
}
