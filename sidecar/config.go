package sidecar

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

// Config is the sidecar's file of settings. Default fills in what a file may leave out.
type Config struct {
	Node    Node                `yaml:"node"`
	DataDir string              `yaml:"data_dir"`
	Listen  Listen              `yaml:"listen"`
	Cloud   preemption.Settings `yaml:"cloud"`
	Policy  preemption.Policy   `yaml:"policy"`
	Actions []Action            `yaml:"actions"`
}

// Node is the machine.
type Node struct {
	Name string `yaml:"name"`
}

// Listen is where the sidecar is found on its own machine. With an empty HTTP it listens only on the socket.
type Listen struct {
	HTTP   string `yaml:"http"`
	Socket string `yaml:"socket"`
}

// Action is one process, unit, program, URL or agent to tell, in exactly one of the ways of its last five fields. When is
// the stance from which it is told; empty Phases are those that suit the way.
type Action struct {
	Name    string        `yaml:"name"`
	When    string        `yaml:"when"`
	Phases  []string      `yaml:"phases"`
	Timeout time.Duration `yaml:"timeout"`

	Signal  Signal  `yaml:"signal"`
	Unit    Unit    `yaml:"unit"`
	Hook    Hook    `yaml:"hook"`
	Webhook Webhook `yaml:"webhook"`
	Agent   Agent   `yaml:"agent"`
}

// The ways of telling are configured as in an agent's workloads.
type (
	Signal  = workloads.SignalSettings
	Hook    = workloads.HookSettings
	Webhook = workloads.WebhookSettings
)

// Unit is a unit of systemd, and what is done with it.
type Unit struct {
	Name string `yaml:"name"`
	Verb string `yaml:"verb"`
}

// Agent is a Lifeboat agent of this machine.
type Agent struct {
	Socket string `yaml:"socket"`
}

// Default is the configuration of an empty file, which lacks only its actions.
func Default() Config {
	host, _ := os.Hostname() // without one, Validate asks for a name
	return Config{
		Node:    Node{Name: host},
		DataDir: "/var/lib/lifeboat-sidecar",
		Listen:  Listen{HTTP: "127.0.0.1:7414", Socket: "/run/lifeboat/sidecar.sock"},
		Cloud:   preemption.DefaultSettings(),
	}
}

// defaultTimeout is the time of an action that names none: more than EC2's two minutes, and not for ever.
const defaultTimeout = 10 * time.Minute

// Load reads the file at path and merges the files of conf.d and of its own .d directory beside it (config.Load). Names of
// header files are relative to path's directory.
func Load(path string) (Config, error) {
	c := Default()
	if err := config.Load(path, &c); err != nil {
		return Config{}, err
	}
	for i := range c.Actions {
		a := &c.Actions[i]
		for name, file := range a.Webhook.HeaderFiles {
			a.Webhook.HeaderFiles[name] = config.In(filepath.Dir(path), file)
		}
		a.fill()
	}
	return c, nil
}

// OfThisMachine lists the files that must not be in an image: the notices of this machine, and who was told of them. A copy
// that began with a notice which was told would tell nobody that the copy goes. It is an error while the sidecar runs.
func (c Config) OfThisMachine() ([]string, error) {
	if conn, err := net.Dial("unix", c.Listen.Socket); err == nil {
		conn.Close()
		return nil, errors.New("the sidecar runs: stop it first: systemctl stop lifeboat-sidecar")
	}
	return slices.DeleteFunc([]string{filepath.Join(c.DataDir, "incident.json"), filepath.Join(c.DataDir, "incidents")}, func(path string) bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	}), nil
}

// fill sets the fields that an action leaves out to their defaults.
func (a *Action) fill() {
	if a.When == "" {
		a.When = string(preemption.StanceDrain)
	}
	if a.Timeout == 0 {
		a.Timeout = defaultTimeout
	}
	if len(a.Phases) > 0 {
		return
	}
	a.Phases = []string{string(workloads.PhaseNoticed)}
	if a.way() == "agent" { // it goes by the deadline, and may have no other way to hear that this has moved
		a.Phases = append(a.Phases, string(workloads.PhaseChanged))
	}
	if a.way() != "signal" && a.way() != "unit" { // these two can only say: leave
		a.Phases = append(a.Phases, string(workloads.PhaseWithdrawn))
	}
}

// ways lists the ways of telling that the action's settings name.
func (a *Action) ways() (ways []string) {
	for way, set := range map[string]any{"signal": a.Signal, "unit": a.Unit, "hook": a.Hook, "webhook": a.Webhook, "agent": a.Agent} {
		if !reflect.ValueOf(set).IsZero() {
			ways = append(ways, way)
		}
	}
	slices.Sort(ways)
	return ways
}

// way is the one way of an action that was validated.
func (a *Action) way() string { return strings.Join(a.ways(), " and ") }

// maxTimeout is a day: longer than any notice gives, except maintenance that is announced for later.
const maxTimeout = 24 * time.Hour

// Validate reports every value out of its bounds.
func (c *Config) Validate(report func(key string, value any, bound, remedy string)) {
	if c.Node.Name == "" {
		report("node.name", nil, "must have a name", "set it to a name like host-a")
	}
	config.CheckDir(report, "data_dir", c.DataDir)
	if c.Listen.HTTP != "" {
		config.CheckListen(report, "listen.http", c.Listen.HTTP, "127.0.0.1:7414 or [::1]:7414")
	}
	config.CheckSocket(report, "listen.socket", c.Listen.Socket)
	c.Cloud.Validate(report)
	c.Policy.Validate(report)
	if len(c.Actions) == 0 {
		report("actions", nil, "must name somebody to tell", "write an action, such as {name: drain, hook: {command: [/usr/local/bin/drain]}}")
	}
	names := map[string]int{}
	for i, a := range c.Actions {
		key := fmt.Sprintf("actions[%d]", i)
		if !config.IsName(a.Name) {
			report(key+".name", a.Name, config.NameBound, "rename the action")
		} else if first, ok := names[a.Name]; ok {
			report(key+".name", a.Name, fmt.Sprintf("is the name of actions[%d] too", first), "rename one of them")
		} else {
			names[a.Name] = i
		}
		a.validate(report, key)
		if a.Agent.Socket != "" && a.Agent.Socket == c.Listen.Socket {
			report(key+".agent.socket", a.Agent.Socket, "must not be the sidecar's own", "name the agent's, /run/lifeboat/agent.sock")
		}
	}
}
