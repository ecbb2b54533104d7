package reading

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/enginetest"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

func newVault(t *testing.T) *vault.Vault {
	t.Helper()
	v, err := vault.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	return v
}

// slowly is a reader that takes its time over each part of an answer.
type slowly struct {
	*httptest.ResponseRecorder
	pause time.Duration
}

func (w slowly) Write(p []byte) (int, error) {
	time.Sleep(w.pause)
	return w.ResponseRecorder.Write(p)
}

// A holder may stop without a word, as a frozen or cut off machine does. Before the first byte another holder is asked; later
// the reader sees the answer break off. Readers may be as slow as they like.
func TestHolderThatStandsStillIsLeft(t *testing.T) {
	x := enginetest.Content("x", 3*wire.ChunkBytes)
	serves := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(x)))
		w.Write(x)
	})
	stops := func(after int) http.Handler { // after so many bytes; negative: before the header
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if after >= 0 {
				w.Header().Set("Content-Length", fmt.Sprint(len(x)))
				w.Write(x[:after])
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
		})
	}
	for _, c := range []struct {
		name   string
		first  http.Handler
		next   bool // whether there is another holder
		pause  time.Duration
		status int // -1: broken off
		bytes  int
		took   time.Duration // 0: it does not matter
	}{
		{"before the header", stops(-1), true, 0, 200, len(x), firstByte},
		{"before the first byte", stops(0), true, 0, 200, len(x), firstByte},
		{"before the first byte, the only one", stops(0), false, 0, 503, 0, firstByte},
		{"in the middle", stops(wire.ChunkBytes), true, 0, -1, wire.ChunkBytes, holderStall},
		{"not it, but the reader", serves, false, 2 * holderStall, 200, len(x), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{nodes: map[string]http.Handler{"first": c.first}}
				at := holders("first")
				if c.next {
					f.nodes["next"], at = serves, holders("first", "next")
				}
				fetch := &Fetcher{Dial: f.dial, Locate: func(context.Context, inventory.BlockID, bool) (Location, error) {
					return Location{Holders: at}, nil
				}}
				defer fetch.Close()
				var log bytes.Buffer
				rd := &Reader{Vault: newVault(t), Fetch: fetch, Log: slog.New(slog.NewTextHandler(&log, nil))}
				w := slowly{httptest.NewRecorder(), c.pause}
				start, status := time.Now(), -1
				func() {
					defer func() {
						if cut := recover(); cut != nil && cut != http.ErrAbortHandler {
							panic(cut)
						}
					}()
					rd.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/blocks/cache/-/x", nil))
					status = w.Code
				}()
				took := time.Since(start)
				if status != c.status || c.took > 0 && took != c.took {
					t.Errorf("status %d after %s, want %d after %s", status, took, c.status, c.took)
				}
				told := strings.Contains(log.String(), fmt.Sprintf("block=cache/-/x peer=first bytes=%d ", c.bytes))
				if broke := status == -1; told != broke || strings.Count(log.String(), "\n") > 1 {
					t.Errorf("logged %q", log.String())
				}
				if got := w.Body.Bytes(); status != http.StatusServiceUnavailable && !bytes.Equal(got, x[:c.bytes]) {
					t.Errorf("got %d bytes, want %d", len(got), c.bytes)
				}
			})
		})
	}
}

// A holder that is away is asked together with the nodes that may have the block. If none has it, they are not all asked
// again.
func TestAllAreAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{nodes: map[string]http.Handler{"source": http.NotFoundHandler()}}
		located := 0
		fetch := &Fetcher{Dial: f.dial, Locate: func(context.Context, inventory.BlockID, bool) (Location, error) {
			located++
			return Location{Holders: holders("away"), Candidates: holders("away", "source")}, nil
		}}
		defer fetch.Close()
		_, _, err := fetch.open(t.Context(), http.MethodGet, "cache/-/x", nil)
		if !errors.Is(err, errUnreachable) || located != 1 {
			t.Errorf("got %v after %d questions, want it out of reach after one", err, located)
		}
	})
}

// mute is a node that takes a connection and says nothing.
var mute = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })

// A reader knows within ten seconds, however many nodes are silent that may have the block. A node that has it is asked
// early.
func TestSilentCandidatesAreWaitedForTogether(t *testing.T) {
	for name, c := range map[string]struct {
		has    int // which of them has it; -1: none
		status int
		most   time.Duration
	}{
		"none has it":         {-1, 503, 10 * time.Second},
		"the last one has it": {128, 200, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{nodes: map[string]http.Handler{}}
				var all []string
				for i := range 129 {
					name := fmt.Sprintf("n%d", i)
					all, f.nodes[name] = append(all, name), mute
					if i == c.has {
						f.nodes[name] = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
					}
				}
				fetch := &Fetcher{Dial: f.dial, Locate: func(context.Context, inventory.BlockID, bool) (Location, error) {
					return Location{Candidates: holders(all...)}, nil
				}}
				defer fetch.Close()
				rd := &Reader{Vault: newVault(t), Fetch: fetch, Log: slog.New(slog.DiscardHandler)}
				start := time.Now()
				w := httptest.NewRecorder()
				rd.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/blocks/cache/-/x", nil))
				status := w.Code
				if took := time.Since(start); status != c.status || took > c.most {
					t.Errorf("status %d after %s, want %d within %s", status, took, c.status, c.most)
				}
				if asked := len(f.whom()); asked < 128 {
					t.Errorf("asked %d", asked)
				}
			})
		})
	}
}

// An idle connection belongs to the node whose identity was verified. Another node at the same address is not asked over it.
func TestNodeIsNotAskedOverAConnectionToAnother(t *testing.T) {
	for _, address := range []string{"10.0.0.1:7412", "[fe80::1]:7412"} {
		f := &fleet{nodes: map[string]http.Handler{}}
		for _, node := range []string{"b", "c"} {
			f.nodes[node] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, node, r.Host) })
		}
		fetch := &Fetcher{Dial: f.dial}
		defer fetch.Close()
		for _, node := range []string{"b", "b", "c", "b"} {
			resp, err := fetch.ask(t.Context(), Holder{node, address}, http.MethodGet, "cache/-/x", nil, hopLast)
			if err != nil {
				t.Fatal(err)
			}
			said, err := io.ReadAll(resp.Body)
			if err = errors.Join(err, resp.Body.Close()); err != nil || string(said) != node+address {
				t.Errorf("asked %s at %s, heard %q (%v)", node, address, said, err)
			}
		}
		if got := strings.Join(f.whom(), " "); got != "b c" {
			t.Errorf("connected to %q, want each once", got)
		}
	}
}

// The error for a node out of reach says once which block was asked of which node, and why in vain.
func TestNodeOutOfReachIsNamedOnce(t *testing.T) {
	fetch := &Fetcher{Dial: (&fleet{}).dial}
	defer fetch.Close()
	_, err := fetch.ask(t.Context(), Holder{"b", "10.0.0.1:7412"}, http.MethodGet, "cache/-/x", nil, hopLast)
	if want := "read cache/-/x from b: dial b: no route"; err == nil || err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}
