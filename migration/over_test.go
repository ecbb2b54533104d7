package migration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// ofApps is a vault with some blocks of each of the scopes.
func ofApps(t *testing.T, blocks int, scopes ...string) *vault.Vault {
	t.Helper()
	v, err := vault.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	var records []catalog.Change
	for _, store := range []string{"cache", "spark"} {
		for _, scope := range scopes {
			for i := range blocks {
				records = append(records, catalog.Change{Record: &catalog.Record{Opening: wire.Opening{ID: fmt.Sprintf("%s/%s/b/%d", store, scope, i)}, Segment: 1}})
			}
		}
	}
	if _, err := v.Catalog.Commit(records, nil, nil); err != nil {
		t.Fatal(err)
	}
	return v
}

// Names that sort beside each other's slash hide no other, and more than one look finds them all.
func TestAppsOfWhatLanded(t *testing.T) {
	want := []string{"app", "app-2", "app.2", "app0", "app00", "b"}
	for i := range catalog.Batch {
		want = append(want, fmt.Sprintf("many-%04d", i))
	}
	apps, err := ofApps(t, 3, append(want, "-")...).Catalog.Apps()
	if err != nil || !slices.Equal(apps, want) {
		t.Errorf("got %d: %.100q (%v), want %d", len(apps), apps, err, len(want))
	}
	if apps, err := ofApps(t, 0).Catalog.Apps(); err != nil || len(apps) > 0 {
		t.Errorf("of an empty vault: got %q (%v)", apps, err)
	}
}

// What a drain heard last holds while nobody answers, and an end may be taken back.
func TestDrainHearsThatAnAppIsNotOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		d := &Drain{overAsked: make(chan struct{}), cfg: DrainConfig{Vault: ofApps(t, 1, "p", "q"), Log: slog.New(slog.DiscardHandler), Over: func(_ context.Context, apps []string) (map[string]string, error) {
			if !slices.Equal(apps, []string{"p", "q"}) {
				t.Errorf("it asks of %q", apps)
			}
			switch asked++; asked {
			case 1:
				return map[string]string{"p": "a slip"}, nil
			case 2:
				return nil, errors.New("away")
			}
			return nil, nil
		}}}
		go d.learnOver(ctx)
		is := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := d.isOver(inventory.Block{ID: "spark/p/x"}); got != want {
				t.Errorf("%s: got %q, want %q", when, got, want)
			}
		}
		is("at once", "its app is over: a slip")
		if why := d.isOver(inventory.Block{ID: "spark/q/x"}) + d.isOver(inventory.Block{ID: "cache/-/p"}); why != "" {
			t.Errorf("of others: got %q", why)
		}
		time.Sleep(overEvery)
		is("while nobody answers", "its app is over: a slip")
		time.Sleep(overAgain)
		is("taken back", "")
		cancel()
		time.Sleep(overEvery)
	})
}

// Where an app ends each second a holder asks every ten, and the end that came while it was asking is not missed. Without news it
// asks each minute.
func TestHolderAsksWhenAnAppEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, asked := time.Now(), []time.Duration{}
		var changed atomic.Pointer[chan struct{}]
		anew := func() (was *chan struct{}) { next := make(chan struct{}); return changed.Swap(&next) }
		ends := func() { close(*anew()) }
		anew()
		r := &Receiver{cfg: ReceiverConfig{Vault: ofApps(t, 1, "p"), Log: slog.New(slog.DiscardHandler), Over: func(context.Context, []string) (map[string]string, error) {
			if asked = append(asked, time.Since(began)); len(asked) == 1 {
				ends()
			}
			return nil, nil
		}, OverChanged: func() <-chan struct{} { return *changed.Load() }}}
		go r.letGo(ctx)
		for range 25 {
			time.Sleep(time.Second)
			synctest.Wait()
			ends()
		}
		time.Sleep(3 * time.Minute)
		cancel()
		synctest.Wait()
		const s = time.Second
		if want := []time.Duration{1 * s, 11 * s, 21 * s, 31 * s, 91 * s, 151 * s}; !slices.Equal(asked, want) {
			t.Errorf("asked at %v, want %v", asked, want)
		}
	})
}
