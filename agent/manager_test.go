package agent

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

// The line in systemctl says at a glance whether the node is going, and how far it is.
func TestHeadline(t *testing.T) {
	for want, s := range map[string]*api.Status{
		"no notice; 5 blocks held for others":                                    {HeldBlocks: 5},
		"under notice: rebalance from ec2; 0 blocks held for others":             {Notice: &api.Notice{Kind: "rebalance", Source: "ec2"}},
		"under notice: terminate from ec2, 1m58s left; 0 blocks held for others": {Notice: &api.Notice{Kind: "terminate", Source: "ec2", Remaining: durationpb.New(118*time.Second + 3)}},
		"under notice: stop from ec2, 0s left; sending: 3 of 9 blocks moved, 1 lost; 2 blocks held for others": {
			Notice: &api.Notice{Kind: "stop", Source: "ec2", Remaining: durationpb.New(-time.Second)}, HeldBlocks: 2,
			Drain: &api.DrainProgress{Phase: "sending", BlocksMoved: 3, BlocksTotal: 9, BlocksLost: 1},
		},
	} {
		if got := headline(s); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// Where no manager listens, as in a container, nothing is put together for it.
func TestNoManagerListens(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := new(Agent).tellManager(t.Context()); err != nil { // which has nothing to tell
		t.Error(err)
	}
}
