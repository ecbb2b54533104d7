package heartbeat

import (
	"context"
	"slices"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
)

// mostApps is how many one call may name (api/lifeboat.proto).
const mostApps = 1024

// CheckApps asks which of the apps are over, and why each is. After an error nothing is known of the apps of the failed
// call.
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

// AppsChanged is closed when the answer to a beat says that apps have ended, or that an end was taken back. It is also
// closed when a new coordinator begins to count.
func (c *Client) AppsChanged() <-chan struct{} { return c.ends.changed.Next() }

// Lapsed is closed when the coordinator next says that some blocks that this node carried are held no more.
func (c *Client) Lapsed() <-chan struct{} { return c.lapses.changed.Next() }

// ends watches a number in the replies that changes with each such event: ended apps, or carried blocks that are held no
// more.
type ends struct {
	number  uint64 // of the newest reply; whoever hears the replies owns it
	changed await.News
}

func (e *ends) hear(number uint64) {
	if number != 0 && number != e.number {
		e.number = number
		e.changed.Tell()
	}
}
