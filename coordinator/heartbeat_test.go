package coordinator

import (
	"context"
	"iter"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/heartbeat"
)

// The agents' own client works with this server, over a restart of the server too.
func TestRealAgentsLink(t *testing.T) {
	inTown(t, func(v *town) {
		client := func(name string) *heartbeat.Client {
			c, err := heartbeat.New(heartbeat.Config{
				Node: name, Incarnation: "i", PeerAddress: name + ":7412", Coordinators: []string{"c:1"},
				TLS:       certs.Dev(certs.Name{Role: certs.RoleNode, Name: name}).Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator}),
				Dial:      func(ctx context.Context, _, _ string) (net.Conn, error) { return v.dial(ctx) },
				PeersFile: filepath.Join(v.TempDir(), "peers"),
				Status:    func() *api.Status { return &api.Status{RoomBytes: 1} },
				Held: func() iter.Seq2[*api.HeldBlock, error] {
					return func(yield func(*api.HeldBlock, error) bool) {
						yield(&api.HeldBlock{Id: "spark/app/of-" + name, Bytes: 1, From: "x"}, nil)
					}
				},
			})
			if err != nil {
				v.Fatal(err)
			}
			return c
		}
		a, b := client("a"), client("b")
		ctx, cancel := context.WithCancel(v.Context())
		ended := make(chan error, 2)
		go func() { ended <- a.Run(ctx) }()
		go func() { ended <- b.Run(ctx) }()
		time.Sleep(5 * time.Second)
		peers := func(c *heartbeat.Client) (names []string) {
			for _, p := range c.Peers() {
				names = append(names, p.Node)
			}
			return names
		}
		if got := peers(a); !slices.Equal(got, []string{"b"}) {
			v.Errorf("got peers %v, want b", got)
		}
		v.located("spark/app/of-b", "held", "b")

		v.order(10*time.Minute, "a")
		began := time.Now()
		d, err := a.NextDirective(ctx)
		if err != nil || d == nil || time.Since(began) > 2*time.Second {
			v.Fatalf("got %v, %v after %s", d, err, time.Since(began))
		}
		v.restart()
		time.Sleep(20 * time.Second)
		v.is("a", registry.Decommissioning)
		v.is("b", registry.Active)
		v.located("spark/app/of-b", "held", "b")
		if got := peers(a); !slices.Equal(got, []string{"b"}) {
			v.Errorf("got peers %v after a restart, want b", got)
		}
		if err := a.WorkerDecommission(ctx, &api.Notice{Incident: "inc1", Kind: registry.Echo, Source: "coordinator", Stance: "drain"}); err != nil {
			v.Error(err)
		}
		if err := a.Goodbye(ctx, &api.ManifestSummary{Incident: "inc1"}, func(func(*api.ManifestEntry, error) bool) {}); err != nil {
			v.Error(err)
		}
		v.is("a", registry.Decommissioned)
		cancel()
		synctest.Wait()
		for range 2 {
			if err := <-ended; err != nil {
				v.Error(err)
			}
		}
	})
}

// An operator takes an order back and gives another before the node has heard of either. The node is not asked for its manifest of the
// first order again: that would end the second.
func TestAccountOfBeforeIsNotAskedForAgain(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.beat()
		v.order(time.Minute, "a")
		a.status.Accounted = "inc-1"
		if !a.beat().Unaccounted {
			v.Error("the account that nobody has is not asked for")
		}
		a.goodbye("inc-1")
		if a.beat().Unaccounted {
			v.Error("the account that is here is asked for")
		}
		if _, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}}); err != nil {
			v.Fatal(err)
		}
		v.order(time.Minute, "a")
		if a.beat().Unaccounted {
			v.Error("the account of the first is asked for, for the second")
		}
	})
}
