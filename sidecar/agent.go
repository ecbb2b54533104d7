package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/localsock"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

// localAgent is the action that tells a Lifeboat agent of this machine.
type localAgent struct {
	socket string
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	// agentTimeout bounds one call, and agentRetry is the pause after a failure that may pass: an agent that is being
	// restarted takes about a second.
	agentTimeout = 5 * time.Second
	agentRetry   = 500 * time.Millisecond
)

func (l localAgent) String() string { return "decommission the agent on " + l.socket }

// Tell implements workloads.Action. It calls DecommissionSelf, Simulate for a rehearsal, or Cancel after a withdrawal, and
// tries until ctx ends. PhaseDone tells an agent nothing, because it knows by itself when it is done.
func (l localAgent) Tell(ctx context.Context, w workloads.Word) error {
	conn, err := grpc.NewClient("passthrough:///agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.dial(ctx, "unix", l.socket) }))
	if err != nil {
		return fmt.Errorf("reach the agent on %s: %w", l.socket, err)
	}
	defer conn.Close()
	calls := api.NewLocalClient(conn)
	var last error
	for tries := 1; ; tries++ {
		err := l.call(ctx, calls, w)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("tell the agent on %s: %w", l.socket, err)
		switch status.Code(errors.Unwrap(err)) {
		case codes.PermissionDenied, codes.InvalidArgument, codes.Unimplemented:
			return err
		case codes.FailedPrecondition: // it is under notice in earnest
			if w.Rehearsal {
				return err
			}
		}
		if last == nil || ctx.Err() == nil { // "time is up" says less than the failure before it
			last = err
		}
		if tries&(tries-1) == 0 {
			workloads.Trouble(ctx, err)
		}
		conn.ResetConnectBackoff() // gRPC's own pauses grow beyond what a notice leaves
		if !await.Sleep(ctx, agentRetry) {
			return workloads.GivenUp(ctx, tries, last)
		}
	}
}

func (l localAgent) call(ctx context.Context, calls api.LocalClient, w workloads.Word) error {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	switch w.Phase {
	case workloads.PhaseNoticed, workloads.PhaseChanged:
		var left *durationpb.Duration
		if !w.Deadline.IsZero() {
			left = durationpb.New(max(0, time.Until(w.Deadline)))
		}
		if w.Rehearsal {
			_, err := calls.Simulate(ctx, &api.SimulateRequest{Kind: string(preemption.KindManual), In: left, Reason: reason(w)})
			return err
		}
		_, err := calls.DecommissionSelf(ctx, &api.DecommissionSelfRequest{Reason: reason(w), Timeout: left})
		return err
	case workloads.PhaseWithdrawn:
		_, err := calls.Cancel(ctx, &api.CancelRequest{Reason: reason(w)})
		return err
	default:
		return nil
	}
}

// reason tells people who look at the agent where its decommission comes from.
func reason(w workloads.Word) string {
	text := fmt.Sprintf("%s says %s", w.Source, w.Kind)
	if w.Reason != "" {
		text += ": " + w.Reason
	}
	return strings.ToValidUTF8(text[:min(len(text), localsock.LongestReason)], "")
}
