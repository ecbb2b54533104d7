package coordinator

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/attest"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// Config is the coordinator's file of settings. Default fills in what a file may leave out.
type Config struct {
	Name    string          `yaml:"name"`
	Listen  Listen          `yaml:"listen"`
	DataDir string          `yaml:"data_dir"`
	TLS     config.TLS      `yaml:"tls"`
	Peers   []Peer          `yaml:"peers"`
	Node    string          `yaml:"node"` // of this coordinator's machine; empty: the node at the host that peers have for this coordinator
	Hosts   hosts.Files     `yaml:"hosts"`
	Issue   Issue           `yaml:"issue"`
	Join    attest.Settings `yaml:"join"` // machines that their cloud vouches for
	Loss    Loss            `yaml:"loss"`

	Webhooks []Webhook `yaml:"webhooks"`

	Heartbeat           time.Duration `yaml:"heartbeat"`
	Lease               time.Duration `yaml:"lease"`
	SuspectAfter        time.Duration `yaml:"suspect_after"` // 0: half of the lease
	DecommissionTimeout time.Duration `yaml:"decommission_timeout"`
	Election            time.Duration `yaml:"election"`
	RestartTimeout      time.Duration `yaml:"restart_timeout"`
	ForgetAfter         time.Duration `yaml:"forget_after"`
	MaintenanceLead     time.Duration `yaml:"maintenance_lead"`
}

// Listen is where agents and operators (GRPC) and readers (HTTP) find the coordinator.
type Listen struct {
	GRPC string `yaml:"grpc"`
	HTTP string `yaml:"http"`
}

// Issue lets this coordinator issue certificates: to machines that join, and to renew those whose life is half over. Each coordinator that
// may lead needs it.
type Issue struct {
	CAKey string        `yaml:"ca_key"` // of tls.ca; empty: certificates are made by hand
	Life  time.Duration `yaml:"life"`
}

// Default is the configuration of an empty file, which lacks only its certificates.
func Default() Config {
	host, _ := os.Hostname() // without one, Validate asks for a name
	return Config{
		Name:                host,
		Listen:              Listen{GRPC: ":7411", HTTP: ":7410"}, // of IPv4 and IPv6
		DataDir:             "/var/lib/lifeboat/coordinator",      // an agent may live beside it
		Heartbeat:           time.Second,
		Issue:               Issue{Life: 30 * 24 * time.Hour},
		Join:                attest.Default(),
		Lease:               30 * time.Second,
		Loss:                defaultLoss(),
		DecommissionTimeout: time.Hour,
		Election:            defaultElection,
		RestartTimeout:      10 * time.Minute,
		ForgetAfter:         registry.ForgetAfter,
		MaintenanceLead:     10 * time.Minute,
	}
}

// Load reads the file at path and the files beside it that are merged into it (config.Load). Names of certificates and of host files are
// relative to path's directory.
func Load(path string) (Config, error) {
	c := Default()
	if err := config.Load(path, &c); err != nil {
		return Config{}, err
	}
	dir := filepath.Dir(path)
	c.TLS, c.Join = c.TLS.In(dir), c.Join.In(dir)
	c.Hosts.Include, c.Hosts.Exclude = config.In(dir, c.Hosts.Include), config.In(dir, c.Hosts.Exclude)
	c.Issue.CAKey = config.In(dir, c.Issue.CAKey)
	for i, w := range c.Webhooks {
		c.Webhooks[i] = w.in(dir)
	}
	return c, nil
}

// The bounds of heartbeat. The lower is what a small coordinator can answer for a large fleet. The upper comes from the shortest notice of a
// cloud, 30 s at Azure (learn.microsoft.com/azure/virtual-machines/linux/scheduled-events): an order must reach its node well inside
// of that, and replies to heartbeats carry it.
const (
	minHeartbeat = 100 * time.Millisecond
	maxHeartbeat = 10 * time.Second
)

// Validate reports every value out of its bounds.
func (c *Config) Validate(report func(key string, value any, bound, remedy string)) {
	if err := c.identity().Check(); err != nil {
		report("name", c.Name, err.Error(), "set it to a name like coordinator-1")
	}
	config.CheckListen(report, "listen.grpc", c.Listen.GRPC, "0.0.0.0:7411 or [::]:7411")
	config.CheckListen(report, "listen.http", c.Listen.HTTP, "0.0.0.0:7410 or [::]:7410")
	config.CheckApart(report, "listen.grpc", c.Listen.GRPC, "listen.http", c.Listen.HTTP)
	config.CheckDir(report, "data_dir", c.DataDir)
	c.TLS.Validate(report, map[string]string{"listen.grpc": c.Listen.GRPC, "listen.http": c.Listen.HTTP})
	c.checkPeers(report)
	c.checkNode(report)
	c.checkWebhooks(report)
	if h := c.Hosts; h.Exclude != "" && filepath.Clean(h.Exclude) == filepath.Clean(h.Include) && !strings.EqualFold(filepath.Ext(h.Exclude), ".json") {
		report("hosts.exclude", h.Exclude, "must differ from hosts.include, or everybody who may join must leave", "name another file, or HDFS's .json, which says both")
	}
	config.CheckBetween(report, "heartbeat", c.Heartbeat, minHeartbeat, maxHeartbeat)
	if c.Lease < 3*c.Heartbeat {
		report("lease", c.Lease, "must cover three heartbeats of "+config.Show(c.Heartbeat), "raise it to "+config.Show(3*c.Heartbeat))
	}
	c.checkSuspects(report)
	c.Loss.check(report)
	config.CheckBetween(report, "issue.life", c.Issue.Life, time.Hour, 10*365*24*time.Hour)
	if c.TLS.DevInsecure && c.Issue.CAKey != "" {
		report("issue.ca_key", c.Issue.CAKey, "cannot be used with tls.dev_insecure", "remove it, or use certificates")
	}
	c.Join.Validate(report)
	if c.Join.Set() && c.Issue.CAKey == "" {
		report("join", nil, "needs issue.ca_key: whoever joins is given a certificate", "set it to the key of tls.ca, or remove join")
	}
	config.CheckBetween(report, "decommission_timeout", c.DecommissionTimeout, time.Second, hosts.MaxTimeout)
	config.CheckBetween(report, "election", c.Election, minElection, maxElection)
	config.CheckBetween(report, "restart_timeout", c.RestartTimeout, 10*time.Second, 24*time.Hour)
	config.CheckBetween(report, "forget_after", c.ForgetAfter, time.Minute, 365*24*time.Hour)
	config.CheckBetween(report, "maintenance_lead", c.MaintenanceLead, 0, 24*time.Hour)
}

func (c Config) identity() certs.Name { return certs.Name{Role: certs.RoleCoordinator, Name: c.Name} }

// Identity is who the coordinator is to its fleet.
func (c Config) Identity() (*certs.Identity, error) {
	if c.TLS.DevInsecure {
		return certs.Dev(c.identity()), nil
	}
	id, err := certs.Load(c.TLS.CA, c.TLS.Cert, c.TLS.Key)
	if err != nil {
		return nil, err
	}
	if got := id.Name(); got.Role != certs.RoleCoordinator {
		return nil, fmt.Errorf("certificate %s is of %q, want one of role %s: %s", c.TLS.Cert, got, certs.RoleCoordinator, certs.IssueCommand(c.TLS.CA, c.identity()))
	}
	return id, nil
}
