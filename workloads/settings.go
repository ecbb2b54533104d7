package workloads

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/lifeboat/lifeboat/config"
)

// The parts of configuration files that say what is told and how, with their validation. A sidecar's actions and an agent's
// workloads share them.

// SignalSettings are a signal and its target: the main process of a unit, the process that a file names, or the processes
// that match.
type SignalSettings struct {
	Signal  string        `yaml:"signal"`
	Unit    string        `yaml:"unit"`
	PIDFile string        `yaml:"pid_file"`
	Match   MatchSettings `yaml:"match"`
}

// MatchSettings say which processes are meant: those that fit every field that is set.
type MatchSettings struct {
	Comm    string `yaml:"comm"`
	CmdLine string `yaml:"cmdline"`
	User    string `yaml:"user"`
}

// HookSettings are a program that is run.
type HookSettings struct {
	Command []string          `yaml:"command"`
	Env     map[string]string `yaml:"env"`
	Dir     string            `yaml:"dir"`
}

// WebhookSettings are a URL that is called. HeaderFiles name files for values that should not be in a configuration file.
type WebhookSettings struct {
	URL         string            `yaml:"url"`
	Headers     map[string]string `yaml:"headers"`
	HeaderFiles map[string]string `yaml:"header_files"`
}

// Open makes the action of settings that were validated.
func (s SignalSettings) Open(units Units) (Action, error) {
	signal, err := parseSignal(s.Signal)
	if err != nil {
		return nil, err
	}
	switch {
	case s.Unit != "":
		return Signal{Signal: signal, Target: mainProcess{s.Unit, units.MainPID}, had: new(had)}, nil
	case s.PIDFile != "":
		return Signal{Signal: signal, Target: pidFile(s.PIDFile), had: new(had)}, nil
	}
	m, err := s.Match.open()
	return Signal{Signal: signal, Target: m, had: new(had)}, err
}

func (m MatchSettings) open() (match, error) {
	match := match{Comm: m.Comm, User: m.User, lines: new(arguments)}
	if m.CmdLine == "" {
		return match, nil
	}
	var err error
	match.CmdLine, err = regexp.Compile(m.CmdLine)
	return match, err
}

// Open makes the hook of validated settings. state is the directory for what must outlive this process.
func (h HookSettings) Open(name, state string) Action {
	hook := Hook{Name: name, Argv: h.Command, Dir: h.Dir, State: state, Detach: Systemd{}.detach}
	for _, name := range slices.Sorted(maps.Keys(h.Env)) {
		hook.Env = append(hook.Env, name+"="+h.Env[name])
	}
	return program{hook}
}

// program is a hook whose String names only what it runs: its arguments may hold secrets.
type program struct{ Hook }

func (p program) String() string { return "run " + p.Argv[0] }

// Open makes the webhook of settings that were validated.
func (w WebhookSettings) Open() Action {
	return Webhook{URL: w.URL, Headers: w.Headers, HeaderFiles: w.HeaderFiles}
}

// Validate reports every value out of its bounds.
func (s SignalSettings) Validate(report config.Report, key string) {
	checkSignalName(report, key+".signal", s.Signal)
	targets := 0
	for _, set := range []bool{s.Unit != "", s.PIDFile != "", s.Match != (MatchSettings{})} {
		if set {
			targets++
		}
	}
	if targets != 1 {
		report(key, nil, "must mean a unit, a pid_file or a match, and one of them", "name one")
	}
	if s.Unit != "" {
		CheckUnit(report, key+".unit", s.Unit)
	}
	if s.PIDFile != "" {
		config.CheckDir(report, key+".pid_file", s.PIDFile)
	}
	if s.Match != (MatchSettings{}) {
		s.Match.validate(report, key+".match")
	}
}

func checkSignalName(report config.Report, key, name string) {
	if _, err := parseSignal(name); err != nil {
		report(key, name, err.Error(), "write the name of a signal, such as SIGPWR or SIGTERM")
	}
}

func (m MatchSettings) validate(report config.Report, key string) {
	if _, err := regexp.Compile(m.CmdLine); err != nil {
		report(key+".cmdline", m.CmdLine, "must be a regular expression: "+err.Error(), "write one that Go understands (pkg.go.dev/regexp/syntax)")
	}
	if m.Comm == "" && m.CmdLine == "" {
		report(key, nil, "must say comm or cmdline: it would mean all that the user runs", "add one")
	}
}

// Validate reports every value out of its bounds.
func (h HookSettings) Validate(report config.Report, key string) {
	checkCommand(report, key+".command", h.Command)
	if h.Dir != "" && h.Dir != "/" {
		config.CheckDir(report, key+".dir", h.Dir)
	}
	for _, name := range slices.Sorted(maps.Keys(h.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			report(key+".env", name, "must be the name of a variable", "write it without '='")
		}
	}
}

func checkCommand(report config.Report, key string, argv []string) {
	if len(argv) == 0 {
		report(key, nil, "must name a program", "write it with its arguments: [/usr/local/bin/drain, --now]")
		return
	}
	config.CheckDir(report, key, argv[0])
}

// Validate reports every value out of its bounds.
func (w WebhookSettings) Validate(report config.Report, key string) {
	u, err := url.Parse(w.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		report(key+".url", nil, "must be a URL", // the value is not shown: URLs of chat services are secrets
			"write it like https://hooks.example.com/lifeboat")
	}
	for _, name := range slices.Sorted(maps.Keys(w.Headers)) {
		checkHeader(report, key+".headers", name)
		if !httpguts.ValidHeaderFieldValue(w.Headers[name]) {
			report(key+".headers."+name, nil, "must be one line of text", "remove line ends and control characters")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.HeaderFiles)) {
		file := w.HeaderFiles[name]
		checkHeader(report, key+".header_files", name)
		if file == "" {
			report(key+".header_files."+name, nil, "must name a file", "write the path of the file that holds the value")
		}
		if _, twice := w.Headers[name]; twice {
			report(key+".header_files."+name, file, "stands in headers already", "keep one of them")
		}
	}
}

func checkHeader(report config.Report, key, name string) {
	if !httpguts.ValidHeaderFieldName(name) {
		report(key, name, "must be the name of a header", "write it like Authorization")
	}
}

// CheckUnit reports a name that is not that of a service or a scope, the units that have processes.
func CheckUnit(report config.Report, key, name string) {
	if !strings.HasSuffix(name, ".service") && !strings.HasSuffix(name, ".scope") || strings.ContainsAny(name, "/ ") {
		report(key, name, "must be the whole name of a service or a scope", "write it like spark-worker.service")
	}
}
