package agent

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/config/configtest"
	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/preemption"
)

// TestConfigMinimal loads the file that the manual shows.
func TestConfigMinimal(t *testing.T) {
	dir := "testdata/config"
	got, err := Load(filepath.Join(dir, "minimal.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Node:         Node{Name: "host-a", Zone: "us-east-1a", Pool: "r5.4xlarge-spot"},
		Coordinators: []string{"10.0.0.1:7411"},
		Listen:       Listen{Peer: "0.0.0.0:7412", HTTP: "127.0.0.1:7413", Socket: "/run/lifeboat/agent.sock"},
		DataDir:      "/var/lib/lifeboat",
		TLS:          config.TLS{CA: dir + "/ca.pem", Cert: dir + "/node.pem", Key: dir + "/node.key"},
		Cloud:        preemption.Settings{Provider: "auto", Poll: time.Second, Acknowledge: true},
		Stores: []Store{
			{Name: "cache", Kind: "cache", Layout: "files", Land: "vault", Paths: []string{"/mnt/d0/cache"}},
			{Name: "spark", Kind: "shuffle", Layout: "spark", Land: "place", Paths: []string{"/mnt/d0/spark", "/mnt/d1/spark"}},
		},
		Workloads: []Workload{{Name: "spark-worker", Type: "spark", Unit: "spark-worker.service"}},
		Drain:     Drain{Timeout: time.Hour, ConnectionsPerPeer: 2, PreCopyBytesPerSecond: 64 << 20},
		Receive:   Receive{ReserveBytes: 1 << 30, MaxStreams: 8, Keep: 7 * 24 * time.Hour, ScrubBytesPerSecond: 64 << 20},
		Fallback:  fallback.Settings{Name: "storage", Layout: "blocks", Streams: 8},
		Disks:     Disks{Every: 10 * time.Second, SlowAt: time.Second, SampleBytes: 4 << 20, Evacuate: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestConfigFaults(t *testing.T) {
	configtest.Faults(t, func(path string) error { _, err := Load(path); return err },
		"testdata/config/faults.yaml", "testdata/config/insecure.yaml", "testdata/config/workloads.yaml", "testdata/config/join.yaml", "testdata/config/joinless.yaml")
}

func TestConfigIdentity(t *testing.T) {
	c, err := Load("testdata/config/least.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := certs.Name{Role: certs.RoleNode, Name: "host-a"}
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
		{want, ""},
		{certs.Name{Role: certs.RoleNode, Name: "host-b"}, `is of "node host-b", want "node host-a"`},
		{certs.Name{Role: certs.RoleCoordinator, Name: "host-c"}, `is of "coordinator host-c", want "node host-a"`},
	} {
		cert, key, err := certs.Issue(dir, issued.name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.TLS = config.TLS{CA: "ca.pem", Cert: filepath.Base(cert), Key: filepath.Base(key)}.In(dir)
		switch id, err := c.Identity(); {
		case issued.want == "" && (err != nil || id.Name() != want):
			t.Errorf("got %v (%v), want %q", id, err, want)
		case issued.want != "" && (err == nil || !strings.Contains(err.Error(), issued.want)):
			t.Errorf("got error %v, want one with %s", err, issued.want)
		}
	}
}

// A coordinator refuses a heartbeat with longer names or more stores than these, so the settings are refused first.
func TestConfigFitsIntoAHeartbeat(t *testing.T) {
	dirs := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("/mnt/d%d", i))
		}
		return all
	}
	faults := func(change func(*Config)) (keys []string) {
		c := Default()
		c.Node.Name, c.Coordinators, c.TLS.DevInsecure, c.Listen.Peer = "host-a", []string{"127.0.0.1:7411"}, true, "127.0.0.1:7412"
		change(&c)
		c.Validate(func(key string, _ any, _, _ string) { keys = append(keys, key) })
		return keys
	}
	store := func(name string, paths []string) Store {
		return Store{Name: name, Kind: "cache", Layout: "files", Paths: paths}
	}
	for _, row := range []struct {
		what   string
		change func(*Config)
		want   []string
	}{
		{"as much as fits", func(c *Config) { c.Stores = []Store{store("a", dirs(255))}; c.Node.Zone = strings.Repeat("z", 128) }, nil},
		{"too many directories", func(c *Config) { c.Stores = []Store{store("a", dirs(255))}; c.Receive.Paths = []string{"/srv"} }, []string{"stores"}},
		{"too many stores", func(c *Config) {
			for i, dir := range dirs(257) {
				c.Stores = append(c.Stores, store(fmt.Sprintf("s%d", i), []string{dir}))
			}
		}, []string{"stores", "stores"}},
		{"a long zone", func(c *Config) { c.Node.Zone = strings.Repeat("z", 129) }, []string{"node.zone"}},
		{"directories that do not print", func(c *Config) {
			c.DataDir, c.Stores = "/srv/life\u00a0boat", []Store{store("a", []string{"/mnt/ca\u3000che", "/mnt/caché"})}
		}, []string{"data_dir", "stores[0].paths[0]"}},
		{"words that do not print", func(c *Config) { c.Node.Zone, c.Node.Pool = "eu\n1", "r5\u202e" }, []string{"node.zone", "node.pool"}},
		{"a long pool", func(c *Config) { c.Node.Pool = strings.Repeat("z", 129) }, []string{"node.pool"}},
	} {
		if got := faults(row.change); !slices.Equal(got, row.want) {
			t.Errorf("%s: got faults at %v, want %v", row.what, got, row.want)
		}
	}
}
