package migration

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// A node that took blocks leaves too, and so does the node that took them from it. The blocks keep their origin and their sums, and each
// can be read as before.
func TestReceiversThatLeaveHandOnWhatTheyHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 20, 3000)
		from := a
		for _, name := range []string{"b", "c", "d"} {
			to := newNode(t, name)
			_, entries := from.drain(t, within(t, time.Minute), to)
			wantThere(t, want, entries, to)
			if got := to.Vault.Count().Blocks; got != 20 {
				t.Errorf("%s holds %d blocks, want 20", name, got)
			}
			from = to
		}
		for id := range want {
			r, err := from.Vault.Catalog.Get(inventory.BlockID(id))
			if err != nil || r.Origin != "a" || r.From != "c" {
				t.Errorf("%s: origin %q, from %q, %v", id, r.Origin, r.From, err)
			}
		}
	})
}

// A reader that is redirected to a node that has handed the block on is not redirected again: that node fetches it from where it is now.
func TestReadersAreRedirectedOnce(t *testing.T) {
	x := contentOf("x", 1000)
	a, b, c := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b"), newNode(t, "c")
	write(t, filepath.Join(a.Dir, "cache/x"), x)
	a.drain(t, within(t, 20*time.Second), b)
	b.drain(t, within(t, 20*time.Second), c)
	b.remove(t, func(vault.Held) bool { return true })

	f := &fleet{nodes: map[string]http.Handler{"c": c.Reader()}}
	agent := func(n *node, holder string) *reading.Reader {
		fetch := &reading.Fetcher{Dial: f.dial, Locate: func(context.Context, inventory.BlockID, bool) (reading.Location, error) {
			return reading.Location{Holders: holders(holder)}, nil
		}}
		t.Cleanup(fetch.Close)
		return &reading.Reader{Vault: n.Vault, Fetch: fetch, Log: slog.New(slog.DiscardHandler)}
	}
	first, stale := agent(newNode(t, "r"), "b"), agent(b, "c")
	f.nodes["b"] = stale
	status, _, h := ask(t, first, http.MethodGet, "/blocks/cache/-/x?redirect=true", nil)
	to, err := url.Parse(h.Get("Location"))
	if err != nil || status != 307 || to.Host != "b:7412" {
		t.Fatalf("status %d to %q, %v", status, h.Get("Location"), err)
	}
	status, body, _ := ask(t, stale, http.MethodGet, to.RequestURI(), nil)
	if status != 200 || !bytes.Equal(body, x) {
		t.Errorf("where it was sent: status %d, %d bytes", status, len(body))
	}
	if !slices.Equal(f.whom(), []string{"c"}) {
		t.Errorf("asked %v, want c alone", f.whom())
	}
	// An agent that asks for a reader is not redirected either: it is told that the node does not have the block.
	f.asked = nil
	if status, _, _ := ask(t, first, http.MethodGet, "/blocks/cache/-/x", nil); status != 503 {
		t.Errorf("through who believes that b has it: status %d, want 503", status)
	}
	if !slices.Equal(f.whom(), []string{"b"}) {
		t.Errorf("asked %v, want b alone", f.whom())
	}
}

// A copy that turns out to be broken is reported, so that the next reader is sent to another. If there is no other, the block is named
// as lost, not as never known.
func TestBrokenCopyIsToldOf(t *testing.T) {
	x := contentOf("x", 1000)
	a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
	write(t, filepath.Join(a.Dir, "cache/x"), x)
	a.drain(t, within(t, 20*time.Second), b)
	flip(t, filepath.Join(b.Dir, "vault/segments"), x[:100], 1)
	f := &fleet{nodes: map[string]http.Handler{"a": a.Reader()}}
	var told []inventory.BlockID
	var candidates []reading.Holder
	fetch := &reading.Fetcher{Dial: f.dial, Locate: func(context.Context, inventory.BlockID, bool) (reading.Location, error) {
		return reading.Location{Candidates: candidates}, nil
	}}
	defer fetch.Close()
	rd := b.Reader()
	rd.Fetch, rd.Broken = fetch, func(id inventory.BlockID) { told = append(told, id) }
	if status, _, _ := get(t, rd, "cache/-/x", ""); status != 410 {
		t.Errorf("the only copy is broken: status %d, want 410", status)
	}
	candidates = holders("a") // a is still there
	if status, body, _ := get(t, rd, "cache/-/x", ""); status != 200 || !bytes.Equal(body, x) {
		t.Errorf("its source has it: status %d, %d bytes", status, len(body))
	}
	if len(told) == 0 || told[0] != "cache/-/x" {
		t.Errorf("told of %v", told)
	}
}
