package workloads

import "context"

// Unit stops a unit through the service manager.
type Unit struct {
	Name    string
	Stop    func(ctx context.Context, unit string) error        // its error names the unit
	MainPID func(ctx context.Context, unit string) (int, error) // for Doubts; nil: it does not look for the process
}

func (u Unit) String() string { return "stop " + u.Name }

// Tell implements Action. It waits for what Stop waits for.
func (u Unit) Tell(ctx context.Context, _ Word) error { return u.Stop(ctx, u.Name) }
