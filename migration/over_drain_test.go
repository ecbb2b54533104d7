package migration

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/receiver"
)

// While no coordinator answers, what a drain last heard of apps holds. The end of an app may be taken back.
func TestDrainHearsThatAnAppIsNotOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		cfg := DrainConfig{Vault: ofApps(t, 1, "p", "q"), Log: slog.New(slog.DiscardHandler), Over: func(_ context.Context, apps []string) (map[string]string, error) {
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
		}}
		endings := newEndings(cfg, newSource(cfg))
		go endings.learn(ctx)
		is := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := endings.isOver(inventory.Block{ID: "spark/p/x"}); got != want {
				t.Errorf("%s: got %q, want %q", when, got, want)
			}
		}
		is("at once", "its app is over: a slip")
		if why := endings.isOver(inventory.Block{ID: "spark/q/x"}) + endings.isOver(inventory.Block{ID: "cache/-/p"}); why != "" {
			t.Errorf("of others: got %q", why)
		}
		time.Sleep(receiver.OverEvery)
		is("while nobody answers", "its app is over: a slip")
		time.Sleep(overAgain)
		is("taken back", "")
		cancel()
		time.Sleep(receiver.OverEvery)
	})
}
