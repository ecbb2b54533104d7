package main

import "time"

// diagnoseCoordinator is the whole diagnosis of a host that only runs a coordinator: it hears no notices, and has no blocks.
func (x *examination) diagnoseCoordinator(add adder) {
	if x.agentErr == nil {
		add("agent", stateOK, "", "%s; this looks at the coordinator, as the file says: lifeboat doctor --config %s looks at that", x.agent.GetNode(), defaultAgentConfig)
	} else {
		add("agent", stateOK, "", "this host has none: it runs a coordinator, hears of no notice, and carries nothing")
	}
	if !x.certEnds.IsZero() {
		state, remedy := stateOK, ""
		if due(x.certBegins, x.certEnds, time.Now()) {
			state, remedy = stateBad, "the coordinator's log says why it was not renewed; without issue.ca_key: "+x.issue()+", put it there, then systemctl reload lifeboat-coordinator"
		}
		add("certificate", state, remedy, "good until %s", x.certEnds.UTC().Format(time.RFC3339))
	}
	const unit = "lifeboat-coordinator.service"
	switch u := x.host.Unit; {
	case x.agentErr == nil: // an agent answers too, and the unit that was looked at is the agent's
	case x.host.UnitErr != nil:
		add("unit", stateUnknown, "", "%s", firstLine(x.host.UnitErr))
	case u.ActiveState != "active":
		add("unit", stateBad, "systemctl status "+unit+" says why", "%s is %s", unit, u.ActiveState)
	default:
		add("unit", stateOK, "", "%s is active", unit)
	}
	x.diagnoseClock(add)
}
