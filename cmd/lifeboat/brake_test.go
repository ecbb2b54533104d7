package main

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

// ReleaseBrake implements api.OperatorServer.
func (f *fleet) ReleaseBrake(_ context.Context, req *api.ReleaseBrakeRequest) (*api.ReleaseBrakeReply, error) {
	var s api.CoordinatorStatus
	if err := f.read("status.json", &s); err != nil {
		return nil, err
	}
	if len(s.GetBrakes()) == 0 {
		return nil, status.Error(codes.FailedPrecondition, "no brake holds: lifeboat brake shows those that do")
	}
	return &api.ReleaseBrakeReply{Nodes: []string{"host-a", "host-b"}}, f.asked(req)
}
