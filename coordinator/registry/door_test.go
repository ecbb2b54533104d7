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
	if err := d.revoke(of, true, t0.Add(-time.Minute)); err != nil || !d.RevokedAt.After(t0) {
		t.Errorf("got %s, %v; want later than %s", d.RevokedAt, err, t0)
	}
}
