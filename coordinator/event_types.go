package coordinator

import (
	"slices"
	"strings"

	"github.com/lifeboat/lifeboat/coordinator/registry"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// eventTypes are the types of all events. docs/events.md says when each happens, and what data it has.
var eventTypes = []string{
	registry.EventRegistered, registry.EventReplaced, registry.EventChanged, registry.EventReturned,
	registry.EventAnnounced, registry.EventDecommissioning, registry.EventExecutor,
	registry.EventDeadline, registry.EventWithdrawn, registry.EventDecommissioned,
	registry.EventManifest, registry.EventRecommissioned, registry.EventLost, registry.EventShutdown,
	registry.EventForgotten, registry.EventExcluded, registry.EventReadmitted,
	registry.EventDeactivated, registry.EventReactivated, registry.EventGone, registry.EventJoined,
	registry.EventHosts, registry.EventHostsRefused, registry.EventBrakeReleased,
	registry.EventMaintenance, registry.EventMachineDown, registry.EventMachineUp,
	registry.EventAppEnded, registry.EventAppResumed, evUnschedulable, evSchedulable, evSuspect, evTrusted, evMoved, evBroken, evBrakeHolds, evGap,
}

// EventTypes are the types that events may have.
func EventTypes() []string { return slices.Clone(eventTypes) }

// checkType refuses a type that no event has: a follower that filters by it would wait for ever, and take silence for peace.
func checkType(t string) error {
	if err := checkWord("type", t, maxWord); err != nil || slices.Contains(eventTypes, t) {
		return err
	}
	return status.Errorf(codes.InvalidArgument, "no event has the type %q; types are %s", t, strings.Join(eventTypes, ", "))
}
