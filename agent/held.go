package agent

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/migration"
)

// askHeldEvery is how often a node asks who has what it carried, for as long as it goes on carrying: under advice that may be weeks. A
// thousand of them with 200,000 blocks each cost the coordinator a tenth of a processor (BenchmarkCheckHeld in package coordinator).
const askHeldEvery = 15 * time.Minute

// inquiry asks who has what earlier passes carried.
type inquiry struct {
	agent  *Agent
	asked  time.Time // when that pass began which had all of it answered last
	unsure bool      // of what this pass asked
}

// of is what a pass is to ask with that begins now; nil: nothing, for an answer is fresh.
func (q *inquiry) of(began time.Time) migration.Lapsed {
	if began.Sub(q.asked) < askHeldEvery {
		return nil
	}
	q.unsure = false
	return q.ask
}

// ended notes that the pass is over.
func (q *inquiry) ended(began time.Time, asked migration.Lapsed) {
	if asked != nil && !q.unsure {
		q.asked = began
	}
}

func (q *inquiry) ask(ctx context.Context, age time.Duration, blocks []migration.Block) (missing []int, why string, err error) {
	missing, why, unsure, err := q.agent.checkHeld(ctx, age, blocks)
	q.unsure = q.unsure || unsure > 0 || err != nil
	return missing, why, err
}

// lapsed is an inquiry that is made once.
func (a *Agent) lapsed(ctx context.Context, age time.Duration, blocks []migration.Block) (missing []int, why string, err error) {
	missing, why, _, err = a.checkHeld(ctx, age, blocks)
	return missing, why, err
}

func (a *Agent) checkHeld(ctx context.Context, age time.Duration, blocks []migration.Block) (missing []int, why string, unsure int, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	carried := make([]*api.HeldBlock, len(blocks))
	for i, b := range blocks {
		carried[i] = &api.HeldBlock{Id: string(b.ID), Bytes: b.Bytes()}
	}
	h, err := a.beat.CheckHeld(ctx, age, carried)
	if status.Code(err) == codes.Unimplemented {
		return nil, "", 0, nil // by an older coordinator
	}
	return h.Missing, h.Why, h.Unsure, err
}
