package coordinator

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

// ListApps lists the apps that there is anything to say of.
func (s *operator) ListApps(_ *api.ListAppsRequest, stream grpc.ServerStreamingServer[api.ListAppsReply]) error {
	for batch := range slices.Chunk(s.appsShown(func(string) bool { return true }), listBatch) {
		if err := stream.Send(&api.ListAppsReply{Apps: batch}); err != nil {
			return err
		}
	}
	return nil
}

// appsShown are the apps that are wanted, by name: somebody speaks for them, nodes run them, or hold blocks of them.
func (f *fleet) appsShown(wanted func(app string) bool) (all []*api.App) {
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
	f.ledger.view(func(m *machine) {
		for app, l := range m.Lives {
			if wanted(app) {
				f.lifeTo(shown(app), l, now)
			}
		}
	})
	for app, nodes := range f.apps.running() {
		if wanted(app) {
			a := shown(app)
			a.Nodes, a.NodesCount = nodes[:min(len(nodes), appsNamed)], int64(len(nodes))
		}
	}
	for app, has := range f.blocks.byApp() {
		if wanted(app) {
			a := shown(app)
			a.HeldBlocks, a.HeldBytes, a.Holders = has.blocks, has.bytes, has.holders
		}
	}
	for _, a := range known {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b *api.App) int { return strings.Compare(a.App, b.App) })
	return all
}

func (f *fleet) lifeTo(a *api.App, l life, now time.Time) {
	a.State, a.Why, a.Owner, a.Since = "RUNNING", l.Over, l.Owner, durationpb.New(now.Sub(l.Since))
	if l.Over != "" {
		a.State = "OVER"
	}
	if !l.beats() {
		return
	}
	a.Lease = durationpb.New(l.Lease)
	if _, last := f.beats.silent(a.App, l, now); !last.IsZero() {
		a.LastBeat = durationpb.New(now.Sub(last))
	}
}

// running are the apps that nodes run, and on which.
func (a *apps) running() map[string][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make(map[string][]string, len(a.runsOn))
	for app, nodes := range a.runsOn {
		all[app] = slices.Clone(nodes)
	}
	return all
}

// holdings are what landed of one app.
type holdings struct{ blocks, bytes, holders int64 }

// byApp adds up what is held of each app. A scope that is only the name of a block manager's directory is no app's, for
// nothing on the disk says whose it is.
func (b *blocks) byApp() map[string]holdings {
	b.mu.RLock()
	defer b.mu.RUnlock()
	all := map[string]holdings{}
	for _, s := range b.shelves {
		if s == nil {
			continue
		}
		here := map[string]holdings{}
		for _, p := range s.sheets {
			p.addUp(here)
		}
		for app, has := range here {
			sum := all[app]
			all[app] = holdings{sum.blocks + has.blocks, sum.bytes + has.bytes, sum.holders + 1}
		}
	}
	return all
}

func (p *sheet) addUp(sums map[string]holdings) {
	if p == nil {
		return
	}
	of := make([]holdings, len(p.kinds))
	for _, r := range p.rows {
		if !r.gone {
			of[r.kind].blocks++
			of[r.kind].bytes += r.bytes
		}
	}
	for i, has := range of {
		_, app, _ := strings.Cut(p.kinds[i].scope.Value(), "/")
		if has.blocks > 0 && app != "-" && !strings.HasPrefix(app, "blockmgr-") {
			sum := sums[app]
			sums[app] = holdings{blocks: sum.blocks + has.blocks, bytes: sum.bytes + has.bytes}
		}
	}
}
