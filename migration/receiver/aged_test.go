package receiver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Blocks that a node copied ahead are kept for a whole Keep after that node has gone. While it may go, the blocks that it has itself are
// kept.
func TestKeptFromWhenTheirNodesWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b")
		said, away := map[string]Home{}, errors.New("the coordinator does not answer")
		n.tune = func(c *Config) {
			c.Keep = time.Hour
			c.Home = func(_ context.Context, node string, about []reading.Version) (Home, error) {
				if len(about) != 0 && len(about) != 2 || len(about) == 2 && about[1].ID != inventory.BlockID("cache/-/1-of-"+node) {
					t.Errorf("%s is asked about %v", node, about)
				}
				return said[node], away
			}
		}
		for i, origin := range []string{"another", "another-long-ago", "may-go", "stays", "went", "went-long-ago", "b"} {
			for j := range 2 {
				name := fmt.Sprintf("%d-of-%s", j, origin)
				o := wire.Opening{ID: "cache/-/" + name, Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Origin: origin, Members: []wire.MemberSize{{Name: name, Bytes: 1}}}
				wantDurable(t, landAll(t, n, openingFrames(uint32(2*i+j+1), o, []byte("x"))))
			}
		}
		time.Sleep(61 * time.Minute)
		wants := func(when string, ids ...string) {
			t.Helper()
			n.receiver.tidyOnce(t.Context(), time.Now())
			if got := heldIDs(t, n.Vault); !slices.Equal(got, ids) {
				t.Errorf("%s: got %v, want %v", when, got, ids)
			}
		}
		wants("nobody says", "cache/-/0-of-another", "cache/-/0-of-another-long-ago", "cache/-/0-of-may-go", "cache/-/0-of-stays", "cache/-/0-of-went", "cache/-/0-of-went-long-ago",
			"cache/-/1-of-another", "cache/-/1-of-another-long-ago", "cache/-/1-of-may-go", "cache/-/1-of-stays", "cache/-/1-of-went", "cache/-/1-of-went-long-ago")
		said["another"] = Home{Stays: true, Lacks: []int{0}, KnownFor: 59 * time.Minute}
		said["another-long-ago"] = Home{Stays: true, KnownFor: time.Hour + time.Second}
		said["may-go"], said["stays"], said["went"], said["went-long-ago"] = Home{Lacks: []int{0}}, Home{Stays: true}, Home{GoneFor: 59 * time.Minute}, Home{GoneFor: 2 * time.Hour}
		away = nil
		wants("they are said", "cache/-/0-of-another", "cache/-/0-of-went", "cache/-/1-of-another", "cache/-/1-of-may-go", "cache/-/1-of-went")
	})
}

// A block that was handed on from node to node goes once its home has been gone for a whole Keep, however lately it came here. Else it
// would outlive every node that has it, in a fleet whose nodes live for less than Keep.
func TestHandedOnBlocksAreKeptFromWhenTheirNodesWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b")
		asked := map[string]int{}
		var ages map[string]time.Duration
		n.tune = func(c *Config) {
			c.Keep = time.Hour
			c.Home = func(_ context.Context, node string, about []reading.Version) (Home, error) {
				if len(about) > 0 {
					t.Errorf("%s is asked about %v, which came just now", node, about)
				}
				if ages == nil {
					return Home{Stays: true}, nil
				}
				asked[node]++
				return Home{Stays: ages[node] == 0, GoneFor: ages[node]}, nil
			}
		}
		for i, origin := range []string{"a", "stays", "went", "went-long-ago"} {
			for j := range 2 {
				name := fmt.Sprintf("%d-of-%s", j, origin)
				o := wire.Opening{ID: "cache/-/" + name, Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Origin: origin, Members: []wire.MemberSize{{Name: name, Bytes: 1}}}
				wantDurable(t, landAll(t, n, openingFrames(uint32(2*i+j+1), o, []byte("x"))))
			}
		}
		ages = map[string]time.Duration{"a": 2 * time.Hour, "went": 59 * time.Minute, "went-long-ago": 61 * time.Minute}
		n.receiver.tidyOnce(t.Context(), time.Now())
		want := []string{"cache/-/0-of-a", "cache/-/0-of-stays", "cache/-/0-of-went", "cache/-/1-of-a", "cache/-/1-of-stays", "cache/-/1-of-went"}
		if got := heldIDs(t, n.Vault); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if want := map[string]int{"stays": 1, "went": 1, "went-long-ago": 1}; !maps.Equal(asked, want) {
			t.Errorf("asked about %v, want once about each home of what was handed on", asked)
		}
	})
}
