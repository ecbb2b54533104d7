package reading

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// A coordinator of a large fleet names only some of the nodes that may have a block. If none of those has it, it may still be
// somewhere.
func TestAllOfALargeFleetAreAsked(t *testing.T) {
	has := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for name, c := range map[string]struct {
		at     int // the node that has it; -1: none
		silent int // the node that does not answer; -1: all answer
		why    string
		fault  error // of LocateMore
		status int
		asked  int // nodes, at least
	}{
		"among the first":                {at: 3, silent: -1, status: 200, asked: 4},
		"among the last":                 {at: 299, silent: -1, status: 200, asked: 290},
		"nowhere":                        {at: -1, silent: -1, status: 404, asked: 300},
		"among the last, one is silent":  {at: 299, silent: 5, status: 200, asked: 290},
		"nowhere, one of them is silent": {at: -1, silent: 5, status: 503, asked: 300},
		"nowhere, and it was known":      {at: -1, silent: -1, why: "b removed it", status: 410, asked: 100},
		"nobody names the others":        {at: 299, silent: -1, fault: errors.New("no leader"), status: 503, asked: 100},
		"a coordinator that begins anew": {at: -1, silent: -1, fault: errAnew, status: 404, asked: 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{nodes: map[string]http.Handler{}}
				var all []string
				for i := range 300 {
					name := fmt.Sprintf("n%03d", i)
					all, f.nodes[name] = append(all, name), http.NotFoundHandler()
					switch i {
					case c.at:
						f.nodes[name] = has
					case c.silent:
						f.nodes[name] = mute
					}
				}
				more := func(_ context.Context, _ inventory.BlockID, after string) ([]Holder, string, error) {
					switch {
					case c.fault == errAnew:
						return holders(all[:100]...), all[99], nil
					case c.fault != nil:
						return nil, "", c.fault
					case after == all[99]:
						return holders(all[100:200]...), all[199], nil
					}
					return holders(all[200:]...), "", nil
				}
				fetch := &Fetcher{Dial: f.dial, LocateMore: more, Locate: func(context.Context, inventory.BlockID, bool) (Location, error) {
					return Location{Candidates: holders(all[:100]...), Next: all[99], Why: c.why}, nil
				}}
				defer fetch.Close()
				rd := &Reader{Vault: newVault(t), Fetch: fetch, Log: slog.New(slog.DiscardHandler)}
				began, w := time.Now(), httptest.NewRecorder()
				rd.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/blocks/cache/-/x", nil))
				if took := time.Since(began); w.Code != c.status || took > 20*time.Second {
					t.Errorf("status %d after %s: %s, want %d", w.Code, took, w.Body, c.status)
				}
				if asked := len(f.whom()); asked < c.asked {
					t.Errorf("asked %d, want %d at least", asked, c.asked)
				}
			})
		})
	}
}

var errAnew = errors.New("not what it was asked before")

// A question to each node costs much: only one block is sought at a time, and a reader of another is told to come again.
func TestOneBlockIsSoughtAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{nodes: map[string]http.Handler{"near": http.NotFoundHandler(), "far": mute}}
		fetch := &Fetcher{Dial: f.dial, Locate: func(context.Context, inventory.BlockID, bool) (Location, error) {
			return Location{Candidates: holders("near"), Next: "near"}, nil
		}, LocateMore: func(context.Context, inventory.BlockID, string) ([]Holder, string, error) {
			return holders("far"), "", nil
		}}
		defer fetch.Close()
		open := func(id inventory.BlockID) (took time.Duration) {
			began := time.Now()
			if _, _, err := fetch.open(t.Context(), http.MethodGet, id, nil); !errors.Is(err, errUnreachable) {
				t.Errorf("%s: got %v, want it out of reach", id, err)
			}
			return time.Since(began)
		}
		var first sync.WaitGroup
		defer first.Wait()
		first.Go(func() { open("cache/-/x") })
		synctest.Wait()
		if took := open("cache/-/y"); took > time.Second {
			t.Errorf("the second waited for %s", took)
		}
	})
}
