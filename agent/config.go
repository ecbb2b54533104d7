package agent

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

// Config is the agent's file of settings. Default fills in what a file may leave out.
type Config struct {
	Node         Node                `yaml:"node"`
	Coordinators []string            `yaml:"coordinators"`
	Listen       Listen              `yaml:"listen"`
	DataDir      string              `yaml:"data_dir"`
	TLS          config.TLS          `yaml:"tls"`
	Join         Join                `yaml:"join"`
	Cloud        preemption.Settings `yaml:"cloud"`
	Policy       preemption.Policy   `yaml:"policy"`
	Stores       []Store             `yaml:"stores"`
	Workloads    []Workload          `yaml:"workloads"`
	Drain        Drain               `yaml:"drain"`
	Receive      Receive             `yaml:"receive"`
	Fallback     fallback.Settings   `yaml:"fallback"`
	Disks        Disks               `yaml:"disks"`
}

// Node is the machine. An empty Name is the certificate's, so a machine stays the same node when its host is renamed; a
// machine without a certificate asks for its host's name. The agent asks the cloud for an empty Zone or Pool.
type Node struct {
	Name string `yaml:"name"`
	Zone string `yaml:"zone"`
	Pool string `yaml:"pool"`
}

// Listen is where the agent is found: by its peers, by what scrapes its metrics, and on its own machine. Advertise is the
// address that peers are told. Empty: it is Peer, and where Peer's host is unspecified, the local address on the way to a
// coordinator on another machine, or else the one on the default route.
type Listen struct {
	Peer          string `yaml:"peer"`
	HTTP          string `yaml:"http"`
	Socket        string `yaml:"socket"`
	Advertise     string `yaml:"advertise"`
	ReadTokenFile string `yaml:"read_token_file"`
}

// Store is a set of directories whose files the agent may carry. Kind is cache or shuffle, Layout files or spark, and
// Land place or vault.
type Store struct {
	Name   string   `yaml:"name"`
	Kind   string   `yaml:"kind"`
	Layout string   `yaml:"layout"`
	Land   string   `yaml:"land"`
	Paths  []string `yaml:"paths"`
	// Value is how long it takes to compute one of its blocks again; 0: what is usual for the kind. Hints give the value of
	// some blocks by name.
	Value time.Duration `yaml:"value"`
	Hints []Hint        `yaml:"hints"`
}

// Hint gives the value of the blocks whose names match a pattern.
type Hint struct {
	Match string        `yaml:"match"`
	Value time.Duration `yaml:"value"`
}

// Workload is a process or engine on this machine that the agent waits for, tells or stops before the machine goes.
type Workload = workloads.Settings

// Drain bounds the agent's work of emptying the node. With a Tail of 0 the source of the notice chooses it; a
// MaxBytesPerSecond of 0 is no cap.
type Drain struct {
	Tail               time.Duration `yaml:"tail"`
	Timeout            time.Duration `yaml:"timeout"`
	ConnectionsPerPeer int           `yaml:"connections_per_peer"`
	MaxBytesPerSecond  config.Bytes  `yaml:"max_bytes_per_second"`
	// PreCopyBytesPerSecond caps copying ahead, while the node serves on.
	PreCopyBytesPerSecond config.Bytes `yaml:"pre_copy_bytes_per_second"`
}

// Receive bounds what the agent takes from leaving peers. Paths are directories for it besides DataDir.
type Receive struct {
	Paths        []string     `yaml:"paths"`
	ReserveBytes config.Bytes `yaml:"reserve_bytes"`
	MaxStreams   int          `yaml:"max_streams"`
	// MaxBytes is a quota for all that rests here from others; 0: the disks decide.
	MaxBytes config.Bytes `yaml:"max_bytes"`
	// Keep is how long a block stays here after it landed; 0: until it is removed by name.
	Keep time.Duration `yaml:"keep"`
	// ScrubBytesPerSecond caps reading back what landed; 0: it is not read back.
	ScrubBytesPerSecond config.Bytes `yaml:"scrub_bytes_per_second"`
}

// Disks says how closely the disks behind all directories are watched. A Limit of 0 means Every; with a SampleBytes of 0 the
// speed of an idle disk is not measured.
type Disks struct {
	Every       time.Duration `yaml:"every"`
	Limit       time.Duration `yaml:"limit"`
	SlowAt      time.Duration `yaml:"slow_at"`
	SampleBytes config.Bytes  `yaml:"sample_bytes"`
	// Evacuate has the agent carry the blocks off a dying disk without being asked.
	Evacuate bool `yaml:"evacuate"`
}

// Default is the configuration of an empty file, which lacks only its coordinators and certificates.
func Default() Config {
	return Config{
		Listen:   Listen{Peer: ":7412", HTTP: "127.0.0.1:7413", Socket: "/run/lifeboat/agent.sock"},
		DataDir:  "/var/lib/lifeboat",
		Cloud:    preemption.DefaultSettings(),
		Drain:    Drain{Timeout: time.Hour, ConnectionsPerPeer: 2, PreCopyBytesPerSecond: 64 << 20},
		Receive:  Receive{ReserveBytes: 1 << 30, MaxStreams: 8, Keep: 7 * 24 * time.Hour, ScrubBytesPerSecond: 64 << 20},
		Fallback: fallback.Default(),
		Disks:    Disks{Every: 10 * time.Second, SlowAt: time.Second, SampleBytes: 4 << 20, Evacuate: true},
	}
}

// Load reads the file at path and merges the files of conf.d and of its own .d directory beside it (config.Load). Names of
// certificates and of the token file are relative to path's directory.
func Load(path string) (Config, error) {
	c := Default()
	if err := config.Load(path, &c); err != nil {
		return Config{}, err
	}
	dir := filepath.Dir(path)
	c.TLS, c.Join.TokenFile = c.tls().In(dir), config.In(dir, c.Join.TokenFile)
	c.Listen.ReadTokenFile = config.In(dir, c.Listen.ReadTokenFile)
	c.Fallback.S3.CredentialsFile = config.In(dir, c.Fallback.S3.CredentialsFile)
	for i := range c.Stores {
		if s := &c.Stores[i]; s.Land == "" {
			s.Land = defaultLand(s.Layout)
		}
	}
	for i, w := range c.Workloads {
		c.Workloads[i] = w.In(dir)
	}
	return c, nil
}

// defaultLand is where blocks of a layout come to rest. Spark finds files that appear in its directories; users of a plain
// cache do not expect files that they did not write.
func defaultLand(layout string) string {
	if layout == inventory.LayoutSpark {
		return inventory.LandPlace
	}
	return inventory.LandVault
}

// HostName is the name that a machine asks for when it is given none.
func HostName() string {
	host, _ := os.Hostname() // without one, Validate asks for a name
	return host
}

// identity is who this machine is by its settings, or asks to be.
func (c Config) identity() certs.Name {
	return certs.Name{Role: certs.RoleNode, Name: cmp.Or(c.Node.Name, HostName())}
}

// Identity is who the agent is to its fleet. The certificate decides. A name in the file must be the certificate's.
func (c Config) Identity() (*certs.Identity, error) {
	if c.TLS.DevInsecure {
		return certs.Dev(c.identity()), nil
	}
	id, err := certs.Load(c.TLS.CA, c.TLS.Cert, c.TLS.Key)
	if err != nil {
		return nil, err
	}
	if got, want := id.Name(), c.identity(); got.Role != want.Role || c.Node.Name != "" && got != want {
		return nil, fmt.Errorf("certificate %s is of %q, want %q: set node.name, or %s", c.TLS.Cert, got, want, certs.IssueCommand(c.TLS.CA, want))
	}
	return id, nil
}

const (
	maxTail        = time.Minute // half of EC2's notice
	maxDrain       = 30 * 24 * time.Hour
	maxConnections = 8 // two to four carried the most between two hosts; more only cost memory
	maxStreams     = 1024
	maxKeep        = 10 * 366 * 24 * time.Hour // longer is for ever, which is 0
	// The bounds of a coordinator on one heartbeat: it refuses a longer one, and the node would never get into the fleet.
	maxStores = 256
	maxDirs   = 256 // of the directories whose disks a heartbeat names
	maxWord   = 128 // bytes of a zone or a pool
)

// Validate reports every value out of its bounds.
func (c *Config) Validate(report func(key string, value any, bound, remedy string)) {
	if err := c.identity().Check(); err != nil {
		report("node.name", c.Node.Name, err.Error(), "set it to a name like host-a")
	}
	for _, w := range []struct{ key, word string }{{"node.zone", c.Node.Zone}, {"node.pool", c.Node.Pool}} {
		if len(w.word) > maxWord {
			report(w.key, w.word, fmt.Sprintf("must be at most %d bytes, is %d", maxWord, len(w.word)), "choose a shorter name")
		}
		checkPrints(report, w.key, w.word)
	}
	if len(c.Coordinators) == 0 {
		report("coordinators", nil, "must name a coordinator", `write its address: coordinators: ["10.0.0.1:7411"]`)
	}
	addresses := map[string]string{"listen.peer": c.Listen.Peer, "listen.http": c.Listen.HTTP}
	for i, addr := range c.Coordinators {
		key := fmt.Sprintf("coordinators[%d]", i)
		config.CheckDial(report, key, addr)
		addresses[key] = addr
		if first := slices.Index(c.Coordinators, addr); first < i {
			report(key, addr, fmt.Sprintf("stands already in coordinators[%d]", first), "remove it")
		}
	}
	c.Listen.validate(report)
	if c.Listen.Advertise != "" {
		addresses["listen.advertise"] = c.Listen.Advertise
	}
	c.tls().Validate(report, addresses)
	c.validateJoin(report)
	if config.CheckDir(report, "data_dir", c.DataDir) {
		checkPrints(report, "data_dir", c.DataDir)
	}
	c.Cloud.Validate(report)
	c.Policy.Validate(report)
	c.validateStores(report)
	workloads.Validate(report, "workloads", c.Workloads)
	c.Drain.validate(report)
	c.Disks.validate(report)
	c.Fallback.Validate(report)
	config.CheckBetween(report, "receive.reserve_bytes", c.Receive.ReserveBytes, 0, math.MaxInt64)
	config.CheckBetween(report, "receive.max_streams", c.Receive.MaxStreams, 1, maxStreams)
	config.CheckBetween(report, "receive.max_bytes", c.Receive.MaxBytes, 0, math.MaxInt64)
	config.CheckBetween(report, "receive.scrub_bytes_per_second", c.Receive.ScrubBytesPerSecond, 0, math.MaxInt64)
	config.CheckBetween(report, "receive.keep", c.Receive.Keep, 0, maxKeep)
}

func (l Listen) validate(report config.Report) {
	config.CheckListen(report, "listen.peer", l.Peer, "0.0.0.0:7412 or [::]:7412")
	config.CheckListen(report, "listen.http", l.HTTP, "127.0.0.1:7413 or [::1]:7413")
	config.CheckApart(report, "listen.peer", l.Peer, "listen.http", l.HTTP)
	config.CheckSocket(report, "listen.socket", l.Socket)
	if l.Advertise != "" {
		config.CheckDial(report, "listen.advertise", l.Advertise)
	}
	if l.ReadTokenFile != "" && !config.Loopback(l.HTTP) {
		report("listen.read_token_file", l.ReadTokenFile, "must not cross the network in clear, as it would on listen.http "+l.HTTP,
			"listen on 127.0.0.1, or read blocks from the peer address with a certificate")
	}
}

func (c *Config) validateStores(report config.Report) {
	if len(c.Stores) > maxStores {
		report("stores", len(c.Stores), fmt.Sprintf("must be at most %d", maxStores), "make one store of several that are alike")
	}
	dirs := 1 + len(c.Receive.Paths)
	for _, s := range c.Stores {
		dirs += len(s.Paths)
	}
	if dirs > maxDirs {
		report("stores", dirs, fmt.Sprintf("must name at most %d directories with data_dir and receive.paths", maxDirs), "name one directory above several of a store on one disk")
	}
	taken := places{{"data_dir", c.DataDir}}
	names := map[string]int{}
	for i, s := range c.Stores {
		key := fmt.Sprintf("stores[%d]", i)
		if !config.IsName(s.Name) {
			report(key+".name", s.Name, config.NameBound, "rename the store")
		} else if s.Name == api.AccountStore {
			report(key+".name", s.Name, "is kept for accounts of drains", "rename the store")
		} else if first, ok := names[s.Name]; ok {
			report(key+".name", s.Name, fmt.Sprintf("is the name of stores[%d] too", first), "rename one of them")
		} else {
			names[s.Name] = i
		}
		oneOf(report, key+".kind", s.Kind, inventory.KindCache, inventory.KindShuffle)
		oneOf(report, key+".layout", s.Layout, inventory.LayoutFiles, inventory.LayoutSpark)
		if s.Land != "" {
			oneOf(report, key+".land", s.Land, inventory.LandPlace, inventory.LandVault)
		}
		s.validateWorth(report, key)
		if len(s.Paths) == 0 {
			report(key+".paths", nil, "must name a directory", "list the directories of the store")
		}
		for j, path := range s.Paths {
			taken.add(report, fmt.Sprintf("%s.paths[%d]", key, j), path)
		}
	}
	for i, path := range c.Receive.Paths {
		taken.add(report, fmt.Sprintf("receive.paths[%d]", i), path)
	}
	if c.Fallback.Dir != "" {
		taken.add(report, "fallback.dir", c.Fallback.Dir)
	}
}

// maxHints bounds how many patterns each planned block is compared with.
const maxHints = 256

func (s Store) validateWorth(report config.Report, key string) {
	config.CheckBetween(report, key+".value", s.Value, 0, inventory.MostValue)
	if len(s.Hints) > maxHints {
		report(key+".hints", len(s.Hints), fmt.Sprintf("must be at most %d", maxHints), "say it with fewer patterns, or in "+inventory.ValuesFile+" files")
	}
	for i, h := range s.Hints {
		key := fmt.Sprintf("%s.hints[%d]", key, i)
		if _, err := path.Match(h.Match, ""); err != nil || h.Match == "" {
			report(key+".match", h.Match, "must be a pattern of names, with * and ? and [a-z]", "such as rdd_7_*")
		}
		config.CheckBetween(report, key+".value", h.Value, time.Millisecond, inventory.MostValue)
	}
}

// hints converts the store's hints for package inventory.
func (s Store) hints() (all []inventory.Hint) {
	for _, h := range s.Hints {
		all = append(all, inventory.Hint(h))
	}
	return all
}

// places are directories of which none may lie in another.
type places []struct{ key, path string }

func (p *places) add(report config.Report, key, path string) {
	if !config.CheckDir(report, key, path) {
		return
	}
	checkPrints(report, key, path)
	for _, t := range *p {
		if inside(path, t.path) || inside(t.path, path) {
			report(key, path, fmt.Sprintf("must be apart from %s %s: no file may be in both", t.key, t.path), "choose another directory")
			break
		}
	}
	*p = append(*p, struct{ key, path string }{key, path})
}

// checkPrints reports a zone, a pool or a directory with characters that do not print. A heartbeat names them, and a
// coordinator would refuse every one.
func checkPrints(report config.Report, key, word string) {
	if strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsPrint(r) }) {
		report(key, word, "must be of characters that print: heartbeats name it", "choose another name")
	}
}

// inside says whether path is dir or lies in it.
func inside(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

func (d Drain) validate(report config.Report) {
	config.CheckBetween(report, "drain.tail", d.Tail, 0, maxTail)
	config.CheckBetween(report, "drain.timeout", d.Timeout, time.Second, maxDrain)
	if d.Tail > 0 && d.Timeout <= d.Tail {
		report("drain.timeout", d.Timeout, "must leave time before the tail of "+config.Show(d.Tail), "raise it above "+config.Show(d.Tail))
	}
	config.CheckBetween(report, "drain.connections_per_peer", d.ConnectionsPerPeer, 1, maxConnections)
	config.CheckBetween(report, "drain.max_bytes_per_second", d.MaxBytesPerSecond, 0, math.MaxInt64)
	config.CheckBetween(report, "drain.pre_copy_bytes_per_second", d.PreCopyBytesPerSecond, 0, math.MaxInt64)
}

// Bounds on how closely disks are watched. Probes each second already cost a little more than they tell; a disk that was not
// probed for ten minutes may be in any state. A sample must take no more than a moment.
const (
	leastProbeEvery = time.Second
	mostProbeEvery  = 10 * time.Minute
	leastProbeLimit = 100 * time.Millisecond
	mostSample      = 64 << 20
)

func (d Disks) validate(report config.Report) {
	config.CheckBetween(report, "disks.every", d.Every, leastProbeEvery, mostProbeEvery)
	if d.Limit != 0 {
		config.CheckBetween(report, "disks.limit", d.Limit, leastProbeLimit, max(d.Every, leastProbeEvery))
	}
	config.CheckBetween(report, "disks.slow_at", d.SlowAt, time.Millisecond, max(cmp.Or(d.Limit, d.Every), time.Millisecond))
	config.CheckBetween(report, "disks.sample_bytes", d.SampleBytes, 0, mostSample)
}

func oneOf(report config.Report, key, value string, words ...string) {
	if slices.Contains(words, value) {
		return
	}
	var shown any
	if value != "" {
		shown = value
	}
	report(key, shown, "must be "+strings.Join(words, " or "), "use "+words[0])
}
