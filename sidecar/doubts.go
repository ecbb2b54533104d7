package sidecar

import (
	"context"
	"os"

	"github.com/lifeboat/lifeboat/workloads"
)

// Doubtful is an action, and what looks wrong about it before there is a notice.
type Doubtful struct {
	Name, What string
	Doubts     []workloads.Doubt
}

// Doubts looks for what would go wrong with the actions of a validated configuration, without telling anything.
func (c *Config) Doubts(ctx context.Context) (all []Doubtful, err error) {
	actions, err := c.build(Deps{})
	if err != nil {
		return nil, err
	}
	for _, a := range actions {
		d := Doubtful{a.name, a.String(), workloads.Doubts(ctx, a.Action)}
		if l, ok := a.Action.(localAgent); ok {
			if _, err := os.Stat(l.socket); err != nil {
				d.Doubts = append(d.Doubts, workloads.Doubt{Found: "the agent: " + err.Error()})
			}
		}
		all = append(all, d)
	}
	return all, nil
}
