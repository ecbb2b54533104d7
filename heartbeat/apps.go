package heartbeat

import (
	"context"
	"slices"
	"sync"

	"github.com/lifeboat/lifeboat/api"
)

// mostApps is how many one call may name (api/lifeboat.proto).
const mostApps = 1024

// CheckApps asks which of the apps are over, and why each is. Of those that a failed call was to ask of nothing is known.
func (c *Client) CheckApps(ctx context.Context, apps []string) (over map[string]string, err error) {
	over = map[string]string{}
	for batch := range slices.Chunk(apps, mostApps) {
		err := c.call(ctx, "ask which apps are over", func(m *link) error {
			reply, err := m.CheckApps(ctx, &api.CheckAppsRequest{Node: c.cfg.Node, Apps: batch})
			for _, a := range reply.GetOver() {
				over[a.GetApp()] = a.GetWhy()
			}
			return err
		})
		if err != nil {
			return over, err
		}
	}
	return over, nil
}

// AppsChanged is closed when the coordinator next says that apps have ended, or that an end was taken back: in the answer to
// a beat. One that began anew says so, too.
func (c *Client) AppsChanged() <-chan struct{} { return c.ends.next() }

// Lapsed is closed when the coordinator next says that nobody holds any more some of what this node carried.
func (c *Client) Lapsed() <-chan struct{} { return c.lapses.next() }

// ends is what the replies say of ends, of apps or of what was carried: a number that is another after each.
type ends struct {
	mu      sync.Mutex
	number  uint64
	changed chan struct{} // closed, and replaced, when it is another
}

func newEnds() *ends { return &ends{changed: make(chan struct{})} }

func (e *ends) hear(number uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if number != 0 && number != e.number {
		e.number = number
		close(e.changed)
		e.changed = make(chan struct{})
	}
}

func (e *ends) next() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}
