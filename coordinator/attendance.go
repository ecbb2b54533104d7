package coordinator

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// missedLooks is after how many looks in a row without an answer a coordinator is reported: a restart misses one.
const missedLooks = 2

// attendance keeps track of which other coordinators answer, and reports those that do not. Two of three decide as well as three do, so
// without a report nobody would notice before the next one fails.
type attendance struct {
	mu     sync.Mutex     // guards missed
	missed map[string]int // looks in a row, by name
}

// note takes the answers (said) of one look at the other members, and logs the changes.
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

// silent are the coordinators that are reported as not answering, by name.
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
