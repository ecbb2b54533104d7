package sidecar

import (
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
		config.CheckBetween(report, key+".timeout", a.Timeout, workloads.Slack, maxTimeout)
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
		a.Signal.Validate(report, key+".signal")
	case "unit":
		workloads.CheckUnit(report, key+".unit.name", a.Unit.Name)
		oneOf(report, key+".unit.verb", a.Unit.Verb, "stop")
	case "hook":
		a.Hook.Validate(report, key+".hook")
	case "webhook":
		a.Webhook.Validate(report, key+".webhook")
	case "agent":
		config.CheckSocket(report, key+".agent.socket", a.Agent.Socket)
	}
}

func oneOf(report config.Report, key, value string, words ...string) {
	if !slices.Contains(words, value) {
		report(key, value, "must be one of "+strings.Join(words, ", "), "use "+words[0])
	}
}
