package api

import (
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// LeaderOf reports whether err is a coordinator's refusal because it does not lead, and where that coordinator believes the leader
// is.
func LeaderOf(err error) (hint *NotLeader, refused bool) {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable {
		return nil, false
	}
	for _, d := range s.Details() {
		if hint, ok := d.(*NotLeader); ok {
			return hint, true
		}
	}
	return nil, false
}

// Why is the message of a failed gRPC call, without gRPC's own words around the reason why no connection came about. It is for
// people; nothing branches on it.
func Why(err error) string {
	said := status.Convert(err).Message()
	quoted, _ := strings.CutPrefix(said, "connection error: desc = ")
	if why, err := strconv.Unquote(quoted); err == nil {
		said = strings.TrimPrefix(strings.TrimPrefix(why, "transport: "), "Error while dialing: ")
	}
	return plainly(said)
}
