package workloads

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/lifeboat/lifeboat/systemd"
)

// Doubt is something that looks wrong about a workload, or about the process that is to be told, before there is a notice.
type Doubt struct {
	Bad   bool // the workload would not be found, or not be told
	Found string
}

// Doubts looks for what would go wrong if the action were told, without telling anything. That its target is not there now
// is no more than a doubt that is not Bad; a nil action has no doubts.
func Doubts(ctx context.Context, a Action) (all []Doubt) {
	switch a := a.(type) {
	case Signal:
		found, err := a.Target.find(ctx, procfs(a.Proc))
		if err != nil {
			return []Doubt{{!isNobody(err), err.Error()}}
		}
		for _, p := range found {
			if err := p.bears(a.Signal); err != nil {
				all = append(all, Doubt{true, fmt.Sprintf("it would not be told: %v", err)})
			}
		}
	case Unit:
		if a.MainPID == nil {
			break
		}
		if _, err := a.MainPID(ctx, a.Name); err != nil {
			return []Doubt{{!errors.Is(err, systemd.ErrNoUnit), err.Error()}}
		}
	case program:
		if _, err := exec.LookPath(a.Argv[0]); err != nil {
			if not, ok := errors.AsType[*exec.Error](err); ok {
				err = not.Err
			}
			return []Doubt{{true, fmt.Sprintf("%s cannot be run: %v", a.Argv[0], err)}}
		}
	}
	return all
}
