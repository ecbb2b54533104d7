package registry

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/certs"
)

// Each list of revocations has a greater version than the one before, whatever the clock of the next leader says: agents take only newer
// lists.
func TestEachListOfRevokedIsLaterThanTheOneBefore(t *testing.T) {
	d, of := Door{}, certs.Name{Role: certs.RoleNode, Name: "host-a"}
	if err := d.revoke(of, false, t0); err != nil {
		t.Fatal(err)
	}
	if err := d.revoke(of, false, t0.Add(-time.Hour)); err != nil || !d.Revoked[of.String()].Equal(t0) {
		t.Errorf("got %s, %v; want no certificate to be good again that was refused from %s on", d.Revoked[of.String()], err, t0)
	}
	if err := d.revoke(of, true, t0.Add(-time.Minute)); err != nil || !d.RevokedAt.After(t0) {
		t.Errorf("got %s, %v; want later than %s", d.RevokedAt, err, t0)
	}
}
