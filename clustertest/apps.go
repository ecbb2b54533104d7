package clustertest

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

// Apps are the applications as the coordinator has them.
func (c *Cluster) Apps() (all []*api.App) {
	c.t.Helper()
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) error {
		all = nil
		stream, err := o.ListApps(ctx, &api.ListAppsRequest{})
		if err != nil {
			return err
		}
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			all = append(all, m.Apps...)
		}
	})
	return all
}

// EndApps makes the operator's call that applications are over, ResumeApps the one that takes it back.
func (c *Cluster) EndApps(reason string, apps ...string) {
	c.t.Helper()
	c.endApps(&api.EndAppsRequest{Apps: apps, Reason: reason})
}

func (c *Cluster) ResumeApps(apps ...string) {
	c.t.Helper()
	c.endApps(&api.EndAppsRequest{Apps: apps, Undo: true})
}

func (c *Cluster) endApps(r *api.EndAppsRequest) {
	c.t.Helper()
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) error {
		_, err := o.EndApps(ctx, r)
		return err
	})
}

// BeatApp sends an application's beat.
func (c *Cluster) BeatApp(app string, lease time.Duration) error {
	c.t.Helper()
	desk := c.Desk()
	defer desk.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	_, err := api.NewOperatorClient(desk).BeatApp(ctx, &api.BeatAppRequest{App: app, Lease: durationpb.New(lease)})
	return err
}
