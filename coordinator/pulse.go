package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/systemd"
)

// headlineEvery is how old the status line may be that the service manager shows.
const headlineEvery = 2 * time.Second

// tellManager keeps the service manager's status line up to date and feeds its watchdog as long as this coordinator gets on, until ctx
// ends.
func (l *ledger) tellManager(ctx context.Context, log *slog.Logger) error {
	if !systemd.Listens() {
		return nil
	}
	feed, err := systemd.WatchdogInterval()
	if err != nil {
		log.Warn("the watchdog is not fed", "err", err)
	}
	tick := time.NewTicker(min(headlineEvery, cmp.Or(feed, headlineEvery)))
	defer tick.Stop()
	var fed time.Time
	var shown systemd.Headline
	for {
		shown.Say(log, l.headline())
		if now := time.Now(); feed > 0 && now.Sub(fed) >= feed-headlineEvery {
			fed = now
			if !l.getsOn(ctx) {
				return nil
			}
			if err := systemd.Alive(); err != nil {
				log.Warn("the watchdog cannot be fed", "err", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// getsOn returns true once the gate that every call passes and raft's main loop have answered. Their answers do not matter: a follower, or
// a leader that is cut off, gets on as well. In a deadlock, or with a hanging disk, it returns false, and not before ctx ends.
func (l *ledger) getsOn(ctx context.Context) bool {
	answered := await.Beside(func() {
		_, _ = l.lead()
		_ = l.raft.VerifyLeader().Error()
	})
	select {
	case <-answered:
		return true
	case <-ctx.Done():
		return false
	}
}

// headline is the line that `systemctl status` shows.
func (l *ledger) headline() string {
	words := []string{"no coordinator leads"}
	if name, _ := l.leader(); l.leads() {
		words[0] = "leads"
	} else if name != "" {
		words[0] = "follows " + name
	}
	c := l.count()
	for _, s := range registry.States {
		if n := c.nodes[s]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(words, "; ")
}
