package coordinator

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/attest"
	"github.com/lifeboat/lifeboat/attest/attestfake"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/enrol"
)

// inCloudyTown is a walled town that trusts a fake EC2 and a fake Google.
func inCloudyTown(t *testing.T, names string, tell func(*town, *attestfake.EC2, *attestfake.GCE)) {
	inWalledTown(t, func(v *town) {
		ec2, gce, dir := attestfake.NewEC2(), attestfake.NewGCE(), v.TempDir()
		s := attest.Default()
		s.Names = names
		s.EC2.Accounts, s.EC2.Certificates = []string{"123456789012"}, []string{filepath.Join(dir, "ec2.pem")}
		s.GCE.Projects, s.GCE.Keys = []string{"my-project-1"}, filepath.Join(dir, "google.json")
		for file, data := range map[string][]byte{s.EC2.Certificates[0]: ec2.Certificate(), s.GCE.Keys: gce.Keys()} {
			if err := os.WriteFile(file, data, 0o600); err != nil {
				v.Fatal(err)
			}
		}
		pin := v.pin()
		v.verify = attest.New(s, pin[:]).Verify
		v.restart()
		tell(v, ec2, gce)
	})
}

func (v *town) pin() certs.Pin {
	v.Helper()
	pins, err := certs.PinsOf(v.cfg.TLS.CA)
	if err != nil {
		v.Fatal(err)
	}
	return pins[0]
}

// shows has a machine with the directory dir join as name, with a document.
func (v *town) shows(dir, name, provider string, document func(key []byte) string) error {
	v.Helper()
	_, err := enrol.Join(v.Context(), enrol.Config{
		Coordinators: []string{"c:7411"}, Name: name, Pin: v.pin(), Files: enrol.In(dir),
		Document: func(_ context.Context, key []byte) (*api.Document, error) {
			return &api.Document{Provider: provider, Signed: []byte(document(key))}, nil
		},
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return v.dial(ctx) },
	})
	return err
}

// instance returns the identity document of an instance that was just launched.
func instance(ec2 *attestfake.EC2, id, ip string) func([]byte) string {
	text := attestfake.Instance{Account: "123456789012", Region: "us-east-1", ID: id, PrivateIP: ip, Pending: time.Now()}.Text()
	return func([]byte) string { return ec2.Sign(text) }
}

// An instance joins with AWS's document, under a name that AWS gave it, once: a second key is refused, whatever its name, and so is a second
// name. An instance that joined in time may repeat that for ever, with the key that it has.
func TestMachinesJoinByTheirCloudsWord(t *testing.T) {
	inCloudyTown(t, "proven", func(v *town, ec2 *attestfake.EC2, _ *attestfake.GCE) {
		dir := v.TempDir()
		one := instance(ec2, "i-00000000000000001", "10.0.0.1")
		wantRefusal(v.T, v.shows(dir, "host-a", "ec2", one), "set node.name to one of")
		if err := v.shows(dir, "ip-10-0-0-1", "ec2", one); err != nil {
			v.Fatal(err)
		}
		v.as(dir, "ip-10-0-0-1").register()
		wantRefusal(v.T, v.shows(v.TempDir(), "ip-10-0-0-1", "ec2", one), "another key")
		wantRefusal(v.T, v.shows(v.TempDir(), "i-00000000000000001", "ec2", one), "another key") // a container on it, say
		wantRefusal(v.T, v.shows(dir, "i-00000000000000001", "ec2", one), "another name, node ip-10-0-0-1")

		late := instance(ec2, "i-00000000000000002", "10.0.0.2")
		time.Sleep(31 * time.Minute)
		wantRefusal(v.T, v.shows(v.TempDir(), "ip-10-0-0-2", "ec2", late), "joins for the first time")
		if err := v.shows(dir, "ip-10-0-0-1", "ec2", one); err != nil {
			v.Errorf("one that has joined asks again with its key: %v", err)
		}
	})
}

// A name that was given a moment ago is taken although its machine has not registered yet; later any machine that proves the name gets it.
func TestNamesAreNotSquatted(t *testing.T) {
	inCloudyTown(t, "any", func(v *town, ec2 *attestfake.EC2, _ *attestfake.GCE) {
		if err := v.shows(v.TempDir(), "host-a", "ec2", instance(ec2, "i-00000000000000001", "10.0.0.1")); err != nil {
			v.Fatal(err)
		}
		two := instance(ec2, "i-00000000000000002", "10.0.0.2")
		wantRefusal(v.T, v.shows(v.TempDir(), "host-a", "ec2", two), "given to ec2:123456789012:i-00000000000000001 a moment ago")
		time.Sleep(registry.ComesWithin)
		dir := v.TempDir()
		if err := v.shows(dir, "host-a", "ec2", two); err != nil { // the first was gone before it came
			v.Fatal(err)
		}
		v.as(dir, "host-a").register()
		wantRefusal(v.T, v.shows(v.TempDir(), "host-a", "ec2", instance(ec2, "i-00000000000000003", "10.0.0.3")), "host-a is ACTIVE")
	})
}

// Google makes a token for one key and one fleet: a copy is of no use to another machine.
func TestCopiedTokensAreNothing(t *testing.T) {
	inCloudyTown(t, "proven", func(v *town, _ *attestfake.EC2, gce *attestfake.GCE) {
		vm := attestfake.VM{Project: "my-project-1", Zone: "europe-west1-b", ID: "152986662232938449", Name: "pool-1", Created: time.Now()}
		pin, copied := v.pin(), ""
		if err := v.shows(v.TempDir(), "pool-1", "gce", func(key []byte) string {
			copied = gce.Token(vm, attest.Audience(pin[:], key), time.Now(), nil)
			return copied
		}); err != nil {
			v.Fatal(err)
		}
		wantRefusal(v.T, v.shows(v.TempDir(), "pool-1", "gce", func([]byte) string { return copied }), "another key")
		wantRefusal(v.T, v.shows(v.TempDir(), "pool-1", "azure", func([]byte) string { return copied }), "no documents of")
	})
}

// Without a cloud in the settings no document lets a machine join.
func TestNoCloudIsBelieved(t *testing.T) {
	inWalledTown(t, func(v *town) {
		wantRefusal(v.T, v.shows(v.TempDir(), "host-a", "ec2", func([]byte) string { return "{}" }), "no cloud's documents are believed")
	})
}
