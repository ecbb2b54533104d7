package api

import (
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// LeaderOf says whether err is the refusal of a coordinator that does not lead, and where the leader is, as far as that
// coordinator knew.
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

// Why is what gRPC says of a call that failed, in plain words, and without what it wraps around why a connection did not come about. It is
// for people; nothing branches on it.
func Why(err error) string {
	said := status.Convert(err).Message()
	quoted, _ := strings.CutPrefix(said, "connection error: desc = ")
	if why, err := strconv.Unquote(quoted); err == nil {
		said = strings.TrimPrefix(strings.TrimPrefix(why, "transport: "), "Error while dialing: ")
	}
	return plainly(said)
}
