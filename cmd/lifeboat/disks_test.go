package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

// emptyingAgent evacuates a disk, and answers as its test says.
type emptyingAgent struct {
	api.LocalClient
	answer func() (*api.Evacuation, error)
}

func (a *emptyingAgent) GetStatus(context.Context, *api.GetAgentStatusRequest, ...grpc.CallOption) (*api.AgentStatus, error) {
	v, err := a.answer()
	if v == nil {
		return &api.AgentStatus{}, err
	}
	return &api.AgentStatus{Evacuations: []*api.Evacuation{{Path: "/mnt/d9"}, v}}, err
}

// An evacuation goes on after a restart of the agent, and so does the wait for it. An interrupted wait says that the evacuation goes on.
func TestWaitingForAnEvacuation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, over := time.Now(), false
		agent := &emptyingAgent{answer: func() (*api.Evacuation, error) {
			switch at := time.Since(began); {
			case at > 5*time.Second && at < 15*time.Second:
				return nil, status.Error(codes.Unavailable, "connection refused")
			case at > 20*time.Second && over:
				return &api.Evacuation{Path: "/mnt/d1", State: "done"}, nil
			}
			return &api.Evacuation{Path: "/mnt/d1", State: "carrying", Progress: &api.DrainProgress{BlocksMoved: 1, BlocksTotal: 2}}, nil
		}}
		wait := func(ctx context.Context) (string, *evacuating, error) {
			var stderr bytes.Buffer
			e := &evacuating{agent: agent, link: &link{whom: "the agent"}, paths: map[string]bool{"/mnt/d1": true}}
			w := newWaiter(&stderr, "the evacuation of /mnt/d1", "undo")
			w.patience = selfPatience
			_, err := w.run(ctx, e.look)
			return stderr.String(), e, err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		said, _, err := wait(ctx)
		if err == nil || !strings.Contains(err.Error(), "the evacuation of /mnt/d1 goes on") {
			t.Errorf("interrupted: got %v", err)
		}
		if !strings.HasPrefix(said, "/mnt/d1  carrying  1/2 blocks") || !strings.Contains(said, "connection refused") || strings.Contains(said, "d9") {
			t.Errorf("it said %q", said)
		}
		over = true
		if _, e, err := wait(t.Context()); err != nil || len(e.last) != 1 || e.last[0].GetState() != "done" {
			t.Errorf("got %v, %v", e.last, err)
		}
		agent.answer = func() (*api.Evacuation, error) { return nil, nil }
		if _, _, err := wait(t.Context()); err == nil || !strings.Contains(err.Error(), "taken back") {
			t.Errorf("taken back: got %v", err)
		}
	})
}
