package sidecar

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

// tellable are the phases that an action may ask for.
var tellable = []string{
	string(workloads.PhaseNoticed), string(workloads.PhaseChanged), string(workloads.PhaseDone), string(workloads.PhaseWithdrawn),
}

// stances from which an action may be told.
var stances = []string{string(preemption.StanceWatch), string(preemption.StancePreCopy), string(preemption.StanceDrain)}

func (a *Action) validate(report config.Report, key string) {
	if a.When != "" {
		oneOf(report, key+".when", a.When, stances...)
	}
	for _, p := range a.Phases {
		oneOf(report, key+".phases", p, tellable...)
	}
	if a.Timeout != 0 {
		config.CheckBetween(report, key+".timeout", a.Timeout, slack, maxTimeout)
	}
	switch ways := a.ways(); len(ways) {
	case 0:
		report(key, nil, "must have one of signal, unit, hook, webhook and agent", "say how "+a.Name+" is told")
	case 1:
		a.validateWay(report, key)
	default:
		report(key, strings.Join(ways, " and "), "must be told in one way", "make an action of each")
	}
}

func (a *Action) validateWay(report config.Report, key string) {
	switch a.way() {
	case "signal":
		a.Signal.validate(report, key+".signal")
	case "unit":
		checkUnit(report, key+".unit.name", a.Unit.Name)
		oneOf(report, key+".unit.verb", a.Unit.Verb, "stop")
	case "hook":
		a.Hook.validate(report, key+".hook")
	case "webhook":
		a.Webhook.validate(report, key+".webhook")
	case "agent":
		checkSocket(report, key+".agent.socket", a.Agent.Socket)
	}
}

func (s Signal) validate(report config.Report, key string) {
	if _, err := workloads.ParseSignal(s.Signal); err != nil {
		report(key+".signal", s.Signal, err.Error(), "write the name of a signal, such as SIGPWR or SIGTERM")
	}
	targets := 0
	for _, set := range []bool{s.Unit != "", s.PIDFile != "", s.Match != (Match{})} {
		if set {
			targets++
		}
	}
	if targets != 1 {
		report(key, nil, "must mean a unit, a pid_file or a match, and one of them", "name one")
	}
	if s.Unit != "" {
		checkUnit(report, key+".unit", s.Unit)
	}
	if s.PIDFile != "" {
		config.CheckDir(report, key+".pid_file", s.PIDFile)
	}
	if _, err := regexp.Compile(s.Match.CmdLine); err != nil {
		report(key+".match.cmdline", s.Match.CmdLine, "must be a regular expression: "+err.Error(), "write one that Go understands (pkg.go.dev/regexp/syntax)")
	}
	if s.Match.User != "" && s.Match.Comm == "" && s.Match.CmdLine == "" {
		report(key+".match", nil, "must say comm or cmdline: it would mean all that the user runs", "add one")
	}
}

func (h Hook) validate(report config.Report, key string) {
	switch {
	case len(h.Command) == 0:
		report(key+".command", nil, "must name a program", "write it with its arguments: [/usr/local/bin/drain, --now]")
	default:
		config.CheckDir(report, key+".command", h.Command[0])
	}
	if h.Dir != "" && h.Dir != "/" {
		config.CheckDir(report, key+".dir", h.Dir)
	}
	for _, name := range slices.Sorted(maps.Keys(h.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			report(key+".env", name, "must be the name of a variable", "write it without '='")
		}
	}
}

// headerName is a token of RFC 9110, section 5.6.2.
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func (w Webhook) validate(report config.Report, key string) {
	u, err := url.Parse(w.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		report(key+".url", nil, "must be a URL", // which is not shown: chat services' are secrets
			"write it like https://hooks.example.com/lifeboat")
	}
	for _, name := range slices.Sorted(maps.Keys(w.Headers)) {
		checkHeader(report, key+".headers", name)
		if strings.ContainsAny(w.Headers[name], "\r\n\x00") {
			report(key+".headers."+name, nil, "must be one line", "remove what comes after it")
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
	if !headerName.MatchString(name) {
		report(key, name, "must be the name of a header", "write it like Authorization")
	}
}

func checkUnit(report config.Report, key, name string) {
	if !strings.HasSuffix(name, ".service") && !strings.HasSuffix(name, ".scope") || strings.ContainsAny(name, "/ ") {
		report(key, name, "must be the whole name of a service or a scope", "write it like spark-worker.service")
	}
}

func oneOf(report config.Report, key, value string, words ...string) {
	if !slices.Contains(words, value) {
		report(key, value, "must be one of "+strings.Join(words, ", "), "use "+words[0])
	}
}
