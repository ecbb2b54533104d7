package coordinator

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// missedLooks is how many looks in a row another coordinator may not answer before that is told: one that is restarted misses one.
const missedLooks = 2

// attendance is which of the other coordinators answer this one. Two of three decide as well as three do, and nobody notices
// before the next one fails.
type attendance struct {
	mu     sync.Mutex     // guards missed
	missed map[string]int // looks in a row, by name
}

// note takes what one look at the members but this one found, and tells the log of what is new.
func (a *attendance) note(members []Peer, said map[string]position, log *slog.Logger) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.missed
	a.missed = map[string]int{}
	for _, p := range members {
		if _, answers := said[p.Name]; answers {
			if was[p.Name] >= missedLooks {
				log.Info("a coordinator answers again", "name", p.Name, "address", p.Address)
			}
			continue
		}
		if a.missed[p.Name] = was[p.Name] + 1; a.missed[p.Name] == missedLooks {
			log.Warn("a coordinator does not answer: start it, or put another in its place (lifeboat raft add --replacing)", "name", p.Name, "address", p.Address)
		}
	}
}

// silent are those of whom it was told.
func (a *attendance) silent() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(a.missed)) {
		if a.missed[name] >= missedLooks {
			names = append(names, name)
		}
	}
	return names
}
