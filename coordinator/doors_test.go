package coordinator

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/lifeboat/lifeboat/api"
)

// Locate of a block that no node holds names the nodes with a fallback, those that stay first.
func TestLocateNamesNodesThatReachAFallback(t *testing.T) {
	inTown(t, func(v *town) {
		doors := func(a *agent, id string) (names string) {
			v.Helper()
			r, err := a.Locate(v.Context(), &api.LocateRequest{Id: id})
			if err != nil {
				v.Fatal(err)
			}
			for _, h := range r.Fallbacks {
				names += h.Node + " "
			}
			return strings.TrimSpace(names)
		}
		const x, y = "other/app/x", "other/app/y" // of a store that none of them has
		plain := v.agent("plain")
		plain.register()
		if got := doors(plain, x); got != "" {
			v.Errorf("got %q, want nobody: there is no fallback", got)
		}
		var all []*agent
		for i, name := range []string{"spill", "spill", "spill", "else"} {
			a := v.agent(fmt.Sprintf("%c", 'a'+i))
			a.status.Fallback = name
			a.register()
			all = append(all, a)
		}
		if got := doors(plain, x); got != "a b d" {
			v.Errorf("got %q, want two of one fallback and one of the other", got)
		}
		all[0].notice("inc1", 1e9)
		all[0].announce()
		if got := doors(plain, x); got != "b c d" {
			v.Errorf("got %q, want those that stay", got)
		}
		for _, a := range all {
			a.beat()
		}
		plain.goodbye("inc1", &api.ManifestEntry{Id: y, Bytes: 3, Outcome: "lost", Reason: "deadline"})
		if got := doors(plain, y); got != "b c d" {
			v.Errorf("got %q for a block that was lost, want the same: another drain may have put it there", got)
		}
		all[1].report(false, x)
		if got := doors(plain, x); got != "" {
			v.Errorf("got %q for a block that is held, want nobody", got)
		}
		all[2].status.Fallback = strings.Repeat("x", 1000)
		_, err := all[2].Heartbeat(v.Context(), &api.HeartbeatRequest{Node: "c", Incarnation: all[2].incarnation, Status: all[2].status})
		v.refused(err, codes.InvalidArgument, "fallback")
	})
}

// A fleet has gone into its fallback, and nobody who reads it is left. The list of blocks calls nothing lost that is there, and Locate says
// to operators where it is, until an agent reads that fallback: then the record there decides.
func TestWhatIsInAFallbackThatNobodyReadsIsNotLost(t *testing.T) {
	inTown(t, func(v *town) {
		const x, y = "spark/app/x", "spark/app/shuffle_1_2_0"
		a, b, c := v.agent("a"), v.agent("b"), v.agent("c")
		a.register()
		b.register()
		c.register()
		c.status.Fallback = "else"
		spilled := func(id, want string) {
			v.Helper()
			r, err := v.operator().Locate(v.Context(), &api.LocateRequest{Id: id})
			if err != nil {
				v.Fatal(err)
			}
			if got := r.Spilled + " by " + r.SpilledBy; got != want || r.State != "unknown" {
				v.Errorf("locate %s: got %s, %s, want %s, unknown", id, r.State, got, want)
			}
		}
		if err := reports(b, &api.ReportBlocksRequest{Node: "b", Incarnation: b.incarnation, Landed: []*api.HeldBlock{{Id: x, From: "gone", Bytes: 7}}}); err != nil {
			v.Fatal(err)
		}
		a.goodbye("inc1", &api.ManifestEntry{Id: y, Bytes: 3, Outcome: "moved", Peer: "fallback:spill"})
		b.goodbye("inc2", &api.ManifestEntry{Id: x, Bytes: 7, Outcome: "moved", Peer: "fallback:spill"})
		c.live(61)
		v.lists("")
		v.lists("b")
		spilled(x, "spill by b")
		spilled(y, "spill by a")
		spilled(y+".data", "spill by a")
		spilled("spark/app/z", " by ")
		c.status.Fallback = "spill"
		c.beat()
		v.lists("")
		if r, err := v.operator().Locate(v.Context(), &api.LocateRequest{Id: x}); err != nil || r.Spilled != "" || len(r.Fallbacks) != 1 {
			v.Errorf("got %v, %v, want c to ask, which reads the fallback", r, err)
		}

		// Another node had it anew, and lost it: what is in the fallback is an older version.
		c.status.Fallback = "else"
		c.beat()
		d := v.agent("d")
		d.register()
		d.goodbye("inc3", &api.ManifestEntry{Id: x, Bytes: 7, Outcome: "lost", Reason: "no peer"})
		v.lists("", x+" lost [] gone")
		if r, err := v.operator().Locate(v.Context(), &api.LocateRequest{Id: x}); err != nil || r.Spilled != "" || r.State != "lost" {
			v.Errorf("got %v, %v, want what is lost", r, err)
		}
	})
}
