package coordinator

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/attest"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/config/configtest"
)

// TestConfigMinimal loads the file that the manual shows.
func TestConfigMinimal(t *testing.T) {
	dir := "testdata/config"
	got, err := Load(filepath.Join(dir, "minimal.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Name:                host,
		Listen:              Listen{GRPC: "0.0.0.0:7411", HTTP: "0.0.0.0:7410"},
		DataDir:             "/var/lib/lifeboat",
		TLS:                 config.TLS{CA: dir + "/ca.pem", Cert: dir + "/coordinator.pem", Key: dir + "/coordinator.key"},
		Heartbeat:           time.Second,
		Lease:               30 * time.Second,
		Issue:               Issue{Life: 30 * 24 * time.Hour},
		Join:                attest.Default(),
		Loss:                Loss{BudgetPercent: 2, FleetPercent: 10, PoolPercent: 20},
		DecommissionTimeout: time.Hour,
		Election:            200 * time.Millisecond,
		RestartTimeout:      10 * time.Minute,
		ForgetAfter:         7 * 24 * time.Hour,
		MaintenanceLead:     10 * time.Minute,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestConfigFaults(t *testing.T) {
	configtest.Faults(t, func(path string) error { _, err := Load(path); return err },
		"testdata/config/faults.yaml", "testdata/config/insecure.yaml", "testdata/config/join.yaml")
}

func TestConfigIdentity(t *testing.T) {
	c := Default()
	c.Name, c.TLS.DevInsecure = "c1", true
	want := certs.Name{Role: certs.RoleCoordinator, Name: "c1"}
	if id, err := c.Identity(); err != nil || id.Name() != want {
		t.Errorf("dev_insecure: got %v (%v), want %q", id, err, want)
	}

	dir := t.TempDir()
	if err := certs.InitCA(dir); err != nil {
		t.Fatal(err)
	}
	for _, issued := range []struct {
		name certs.Name
		want string
	}{
		{certs.Name{Role: certs.RoleCoordinator, Name: "any"}, ""},
		{certs.Name{Role: certs.RoleNode, Name: "host-a"}, `is of "node host-a", want one of role coordinator`},
	} {
		cert, key, err := certs.Issue(dir, issued.name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.TLS = config.TLS{CA: "ca.pem", Cert: filepath.Base(cert), Key: filepath.Base(key)}.In(dir)
		switch id, err := c.Identity(); {
		case issued.want == "" && (err != nil || id.Name() != issued.name):
			t.Errorf("got %v (%v), want %q", id, err, issued.name)
		case issued.want != "" && (err == nil || !strings.Contains(err.Error(), issued.want)):
			t.Errorf("got error %v, want one with %s", err, issued.want)
		}
	}
}
