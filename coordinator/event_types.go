package coordinator

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// eventTypes are all that are told. docs/events.md says when, and what comes with them.
var eventTypes = []string{
	evRegistered, evReplaced, evChanged, evReturned, evAnnounced, evDecommissioning, evExecutor, evDeadline, evWithdrawn, evDecommissioned,
	evManifest, evRecommissioned, evLost, evShutdown, evForgotten, evExcluded, evReadmitted, evDeactivated, evReactivated, evGone, evJoined, evHosts, evHostsRefused, evBrakeReleased, evMaintenance, evMachineDown, evMachineUp,
	evAppEnded, evAppResumed, evUnschedulable, evSchedulable, evSuspect, evTrusted, evMoved, evBroken, evBrakeHolds, evGap,
}

// EventTypes are the types that events may have.
func EventTypes() []string { return slices.Clone(eventTypes) }

// checkType refuses a type that no event has: who filters by it would wait for ever, and take silence for peace.
func checkType(t string) error {
	if err := checkWord("type", t, maxWord); err != nil || slices.Contains(eventTypes, t) {
		return err
	}
	return status.Errorf(codes.InvalidArgument, "no event has the type %q; types are %s", t, strings.Join(eventTypes, ", "))
}
