package workloads

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/config"
)

// Settings are a workload in a configuration file. Fields that are left out have defaults; without a field that asks for it
// no workload is awaited, told or stopped.
type Settings struct {
	Name string `yaml:"name"`
	Type string `yaml:"type"`

	Unit    string        `yaml:"unit"`
	PIDFile string        `yaml:"pid_file"`
	Match   MatchSettings `yaml:"match"`
	Command []string      `yaml:"command"`

	List []string `yaml:"list"`
	Done []string `yaml:"done"`

	Await   bool          `yaml:"await"`
	Tell    TellSettings  `yaml:"tell"`
	Stop    bool          `yaml:"stop"`
	Grace   time.Duration `yaml:"grace"`
	Every   time.Duration `yaml:"every"`
	Timeout time.Duration `yaml:"timeout"`
}

// TellSettings are one way to tell a workload. Signal and Unit are about the workload's own processes.
type TellSettings struct {
	Signal  string          `yaml:"signal"`
	Unit    string          `yaml:"unit"`
	Hook    HookSettings    `yaml:"hook"`
	Webhook WebhookSettings `yaml:"webhook"`
}

const (
	defaultGrace   = 30 * time.Second
	defaultEvery   = 2 * time.Second
	defaultTimeout = 10 * time.Second
	// idlePace is the pause between looks that start programs or walk through all processes, while there is no notice: at 30
	// s even ten milliseconds of work are nothing.
	idlePace = 30 * time.Second

	leastEvery   = 100 * time.Millisecond
	mostEvery    = 10 * time.Minute
	leastTimeout = 100 * time.Millisecond
	mostTimeout  = 5 * time.Minute
	mostGrace    = time.Hour
)

// Open makes the workload of validated settings. state is the directory where hooks keep what must outlive this process.
func (s Settings) Open(units Units, state string) (*Workload, error) {
	w := &Workload{
		Name: s.Name, Type: s.Type, Await: s.Await, Stops: s.Stop, list: s.List, done: s.Done,
		Grace: cmp.Or(s.Grace, defaultGrace), Every: cmp.Or(s.Every, defaultEvery), timeout: cmp.Or(s.Timeout, defaultTimeout),
	}
	target, err := s.open(units, w)
	if err == nil {
		w.Teller, err = s.Tell.open(s, target, units, state)
	}
	if err != nil {
		return nil, fmt.Errorf("workload %s: %w", s.Name, err)
	}
	w.Idle = w.Every
	if s.Type == "match" || s.Type == "exec" || len(s.List) > 0 {
		w.Idle = max(w.Every, idlePace)
	}
	return w, nil
}

func (s Settings) open(units Units, w *Workload) (target Target, err error) {
	switch s.Type {
	case "unit", "spark":
		w.kind = unitKind{s.Unit, units}
		return mainProcess{s.Unit, units.MainPID}, nil
	case "exec":
		w.kind = execKind{s.Command}
		return nil, nil
	case "pid_file":
		target = pidFile(s.PIDFile)
	case "match":
		if target, err = s.Match.open(); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("type %q: there is none of that name", s.Type)
	}
	boot, err := bootID()
	w.kind = processKind{target: target, boot: boot}
	return target, err
}

func (t TellSettings) open(s Settings, target Target, units Units, state string) (Action, error) {
	switch {
	case t.Signal != "":
		signal, err := parseSignal(t.Signal)
		return Signal{Signal: signal, Target: target, had: new(had)}, err
	case t.Unit != "":
		return Unit{Name: s.Unit, Stop: units.Stop}, nil
	case len(t.Hook.Command) > 0:
		return t.Hook.Open(s.Name, state), nil
	case t.Webhook.URL != "":
		return t.Webhook.Open(), nil
	}
	return nil, nil
}

// mostWorkloads bounds the workloads that every heartbeat names.
const mostWorkloads = 64

// Validate reports every value out of its bounds in all workloads of a file. key is where they stand in it.
func Validate(report config.Report, key string, all []Settings) {
	if len(all) > mostWorkloads {
		report(key, len(all), fmt.Sprintf("must be %d at most", mostWorkloads), "join some of them by a match or an exec")
	}
	names := map[string]int{}
	for i, s := range all {
		at := fmt.Sprintf("%s[%d]", key, i)
		if !config.IsName(s.Name) {
			var shown any
			if s.Name != "" {
				shown = s.Name
			}
			report(at+".name", shown, config.NameBound, "name it like spark-worker")
		} else if first, ok := names[s.Name]; ok {
			report(at+".name", s.Name, fmt.Sprintf("is the name of %s[%d] too", key, first), "rename one of them")
		} else {
			names[s.Name] = i
		}
		s.validate(report, at)
	}
}

// types maps the types of workloads to the key that identifies one of that type.
var types = map[string]string{"unit": "unit", "pid_file": "pid_file", "match": "match", "exec": "command", "spark": "unit"}

func (s Settings) validate(report config.Report, key string) {
	theirs, known := types[s.Type]
	if !known {
		var shown any
		if s.Type != "" {
			shown = s.Type
		}
		report(key+".type", shown, "must be unit, pid_file, match, exec or spark", "use unit for what systemd runs")
	} else {
		s.validateWho(report, key, theirs)
	}
	if s.Type == "spark" {
		s.validateSpark(report, key)
	}
	if len(s.List) > 0 {
		checkCommand(report, key+".list", s.List)
	}
	if len(s.Done) > 0 {
		checkCommand(report, key+".done", s.Done)
	}
	s.validateTell(report, key+".tell")
	switch {
	case s.Stop && s.Type == "exec":
		report(key+".stop", true, "must be false for exec: its processes are not known", "say what it is by a unit, a pid_file or a match")
	case s.Stop && !s.Await:
		report(key+".stop", true, "must be awaited: what nobody waits for is never late", "set await: true")
	}
	for _, d := range []struct {
		name               string
		value, least, most time.Duration
	}{{"timeout", s.Timeout, leastTimeout, mostTimeout}, {"grace", s.Grace, 0, mostGrace}, {"every", s.Every, leastEvery, mostEvery}} {
		if d.value != 0 {
			config.CheckBetween(report, key+"."+d.name, d.value, d.least, d.most)
		}
	}
}

// validateWho checks the keys that identify the workload: there must be the one of its type, and no other.
func (s Settings) validateWho(report config.Report, key, theirs string) {
	set := map[string]bool{"unit": s.Unit != "", "pid_file": s.PIDFile != "", "match": s.Match != (MatchSettings{}), "command": len(s.Command) > 0}
	for _, other := range []string{"unit", "pid_file", "match", "command"} {
		if set[other] && other != theirs {
			report(key+"."+other, nil, "must be absent: type "+s.Type+" is known by its "+theirs, "remove it, or change the type")
		}
	}
	switch theirs {
	case "unit":
		CheckUnit(report, key+".unit", s.Unit)
	case "pid_file":
		config.CheckDir(report, key+".pid_file", s.PIDFile)
	case "match":
		s.Match.validate(report, key+".match")
	case "command":
		checkCommand(report, key+".command", s.Command)
	}
}

// validateSpark refuses keys beside name, unit and every: type spark is reserved for telling Spark by its own means, and
// only watched so far.
func (s Settings) validateSpark(report config.Report, key string) {
	watched := Settings{Name: s.Name, Type: s.Type, Unit: s.Unit, Every: s.Every}
	if !reflect.DeepEqual(s, watched) {
		report(key+".type", s.Type, "must have no more than name, unit and every: a unit of that type is watched, and neither awaited nor told",
			"use type: unit")
	}
}

func (s Settings) validateTell(report config.Report, key string) {
	t := s.Tell
	ways := slices.DeleteFunc([]string{"signal", "unit", "hook", "webhook"}, func(way string) bool {
		return reflect.ValueOf(map[string]any{"signal": t.Signal, "unit": t.Unit, "hook": t.Hook, "webhook": t.Webhook}[way]).IsZero()
	})
	if len(ways) > 1 {
		report(key, strings.Join(ways, " and "), "must be one way to tell it", "choose one; a hook may do several things")
		return
	}
	switch strings.Join(ways, "") {
	case "signal":
		checkSignalName(report, key+".signal", t.Signal)
		if s.Type == "exec" {
			report(key+".signal", t.Signal, "must be absent for exec: its processes are not known", "tell it by a hook")
		}
	case "unit":
		if t.Unit != "stop" || s.Type != "unit" {
			report(key+".unit", t.Unit, "must be stop, of a workload of type unit", "use signal, hook or webhook for others")
		}
	case "hook":
		t.Hook.Validate(report, key+".hook")
	case "webhook":
		t.Webhook.Validate(report, key+".webhook")
	}
}

// In makes the names of files relative to a directory, that of the file of settings.
func (s Settings) In(dir string) Settings {
	for name, file := range s.Tell.Webhook.HeaderFiles {
		s.Tell.Webhook.HeaderFiles[name] = config.In(dir, file)
	}
	return s
}

// Doubts looks for what would go wrong, without telling anybody anything.
func (w *Workload) Doubts(ctx context.Context) (all []Doubt) {
	l := w.Look(ctx, nil, false)
	if l.Trouble != "" {
		all = append(all, Doubt{l.State == Unknown, l.Trouble})
	}
	if _, signalled := w.Teller.(Signal); signalled && l.State != Running {
		return all // no process that would get the signal is known
	}
	for _, d := range Doubts(ctx, w.Teller) {
		d.Bad = true // the workload runs, and would not be told
		all = append(all, d)
	}
	return all
}
