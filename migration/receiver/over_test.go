package receiver

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
)

// An app whose name sorts beside another's slash hides no other app, and more than one look finds them all.
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

// Where an app ends each second a holder asks every ten seconds, and an end that comes while it asks is not missed. Without news
// it asks each minute.
func TestHolderAsksWhenAnAppEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, asked := time.Now(), []time.Duration{}
		var changed atomic.Pointer[chan struct{}]
		anew := func() (was *chan struct{}) { next := make(chan struct{}); return changed.Swap(&next) }
		ends := func() { close(*anew()) }
		anew()
		r := &removal{cfg: &Config{Vault: ofApps(t, 1, "p"), Log: slog.New(slog.DiscardHandler), Over: func(context.Context, []string) (map[string]string, error) {
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
