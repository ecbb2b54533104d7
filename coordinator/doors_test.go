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
