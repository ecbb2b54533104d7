package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

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

// A fleet of a hundred pools is cut off: its status stays one screen.
func TestStatusOfManyBrakes(t *testing.T) {
	s := &api.CoordinatorStatus{Name: "c1", Leader: true, Brakes: []*api.Brake{{Scope: "fleet", Suspects: 900, Nodes: 1000}}}
	for i := range 100 {
		s.Brakes = append(s.Brakes, &api.Brake{Scope: "pool", Name: fmt.Sprint("pool-", i), Suspects: 9, Nodes: 10})
	}
	var b strings.Builder
	if err := printCoordinator(&b, s); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); strings.Count(got, "\n") > 24 || !strings.Contains(got, "BRAKE fleet") || !strings.Contains(got, "and 97 more brakes: lifeboat brake") {
		t.Errorf("got:\n%s", got)
	}
}
