package api

import (
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
