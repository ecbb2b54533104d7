package agent

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

const (
	// valuesFile is the file in the data directory with the values that programs gave blocks.
	valuesFile = "values.db"
	// mostValues bounds the values of one call: with ids of 4 KiB each it stays below gRPC's 4 MiB.
	mostValues = 1000
	// tidyValuesEvery is how often the values of blocks that are gone are removed, which looks at each block.
	tidyValuesEvery = 6 * time.Hour
)

// openValues opens the values that programs gave. If that fails, blocks are worth what the other sources say.
func (a *Agent) openValues() {
	told, err := migration.OpenAppraisals(filepath.Join(a.cfg.DataDir, valuesFile), &a.disks)
	if err != nil {
		a.log.Error("what programs said of the worth of blocks is not known, and they can say no more: remove the file and start the agent anew", "err", err)
		return
	}
	a.told = told
}

// tidyValues removes the values of blocks that are gone, while no incident is open.
func (a *Agent) tidyValues(ctx context.Context) error {
	if a.told == nil {
		return nil
	}
	tick := time.NewTicker(tidyValuesEvery)
	defer tick.Stop()
	there := func(id inventory.BlockID) bool { return migration.There(a.stores, a.vault, id) }
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if _, open := a.incidents.Open(); open {
			continue
		}
		forgotten, err := a.told.Tidy(ctx, time.Now(), there)
		if err != nil {
			a.log.Warn("what was said of the worth of blocks could not all be read", "err", err)
		}
		if forgotten > 0 {
			a.log.Info("forgot what blocks were worth that are gone, or were not named for long", "blocks", forgotten)
		}
	}
}

// SetValues stores the values that a program gives blocks. The order in which blocks leave follows them, even in a running
// drain for blocks that it has not met yet.
func (l *local) SetValues(_ context.Context, r *api.SetValuesRequest) (*api.SetValuesReply, error) {
	if n := len(r.GetValues()); n == 0 || n > mostValues {
		return nil, status.Errorf(codes.InvalidArgument, "%d values in one call: want 1 to %d", n, mostValues)
	}
	all := make([]migration.Appraisal, len(r.Values))
	for i, v := range r.Values {
		var err error
		if v.GetValue() == nil || v.GetValue().CheckValid() != nil {
			err = errors.New("it is no duration")
		} else {
			all[i], err = migration.Appraise(l.agent.stores, v.GetId(), v.GetValue().AsDuration())
		}
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "value %d of %d: %v: none of them is taken", i+1, len(all), err)
		}
	}
	switch told := l.agent.told; {
	case told == nil:
		return nil, status.Error(codes.Unavailable, "values cannot be kept: the agent's log says why")
	case r.GetCheck():
		return &api.SetValuesReply{}, nil
	default:
		switch err := told.Say(all, time.Now()); {
		case errors.Is(err, migration.ErrSaidEnough):
			return nil, status.Error(codes.ResourceExhausted, err.Error())
		case err != nil:
			return nil, status.Errorf(codes.Unavailable, "the values are not kept: %v", err)
		}
	}
	return &api.SetValuesReply{}, nil
}

// apiValue converts a value; nil: nothing gave the block one.
func apiValue(value time.Duration) *durationpb.Duration {
	if value == 0 {
		return nil
	}
	return durationpb.New(value)
}
