package coordinator

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// ListApps lists all apps of which anything is known.
func (s *operator) ListApps(_ *api.ListAppsRequest, stream grpc.ServerStreamingServer[api.ListAppsReply]) error {
	for batch := range slices.Chunk(s.lives.shown(func(string) bool { return true }), listBatch) {
		if err := stream.Send(&api.ListAppsReply{Apps: batch}); err != nil {
			return err
		}
	}
	return nil
}

// shown are the wanted apps, by name. An app is known if it has beaten or was ended, if nodes run it, or if they hold blocks of it.
func (v *lives) shown(wanted func(app string) bool) (all []*api.App) {
	known := map[string]*api.App{}
	shown := func(app string) *api.App {
		a := known[app]
		if a == nil {
			a = &api.App{App: app, State: "UNKNOWN"}
			known[app] = a
		}
		return a
	}
	now := time.Now()
	v.ledger.view(func(m *registry.Registry) {
		for app, l := range m.Lives {
			if wanted(app) {
				v.lifeTo(shown(app), l, now)
			}
		}
	})
	for app, nodes := range v.apps.running() {
		if wanted(app) {
			a := shown(app)
			a.Nodes, a.NodesCount = nodes[:min(len(nodes), appsNamed)], int64(len(nodes))
		}
	}
	for app, has := range v.blocks.ByApp() {
		if wanted(app) {
			a := shown(app)
			a.HeldBlocks, a.HeldBytes, a.Holders = has.Blocks, has.Bytes, has.Holders
		}
	}
	for _, a := range known {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b *api.App) int { return strings.Compare(a.App, b.App) })
	return all
}

func (v *lives) lifeTo(a *api.App, l registry.Life, now time.Time) {
	a.State, a.Why, a.Owner, a.Since = "RUNNING", l.Over, l.Owner, durationpb.New(now.Sub(l.Since))
	if l.Over != "" {
		a.State = "OVER"
	}
	if !l.Beats() {
		return
	}
	a.Lease = durationpb.New(l.Lease)
	if _, last := v.beats.silent(a.App, l, now); !last.IsZero() {
		a.LastBeat = durationpb.New(now.Sub(last))
	}
}

// running are the apps that nodes run, each with its nodes.
func (a *apps) running() map[string][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make(map[string][]string, len(a.runsOn))
	for app, nodes := range a.runsOn {
		all[app] = slices.Clone(nodes)
	}
	return all
}
