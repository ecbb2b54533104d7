package workloads

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// Unit tells a unit's main process through the service manager: by its stop job, or by a signal that the manager sends.
// The latter is for a process that is not ours to signal ourselves; it is sent on the same terms as Signal's.
type Unit struct {
	Name   string
	Signal syscall.Signal // 0: stop the unit

	Stop    func(ctx context.Context, unit string) error // returns when it has stopped; its error names the unit
	Kill    func(ctx context.Context, unit string, s syscall.Signal) error
	MainPID func(ctx context.Context, unit string) (int, error)

	Proc string // where proc(5) is; empty: /proc
}

func (u Unit) String() string {
	if u.Signal == 0 {
		return "stop " + u.Name
	}
	return fmt.Sprintf("%s to %s", signalName(u.Signal), u.Name)
}

// Check returns what is wrong with it as a setting.
func (u Unit) Check() error {
	var errs []error
	if u.Name == "" {
		errs = append(errs, errors.New("unit: no name"))
	}
	if u.Signal != 0 {
		errs = append(errs, checkSignal(u.Signal))
	}
	return errors.Join(errs...)
}

// Tell implements Action.
func (u Unit) Tell(ctx context.Context, _ Word) error {
	if u.Signal == 0 {
		return u.Stop(ctx, u.Name)
	}
	if err := u.signal(ctx); err != nil {
		return fmt.Errorf("%s: %w", u, err)
	}
	return nil
}

func (u Unit) signal(ctx context.Context) error {
	main, err := hold(ctx, MainProcess{u.Name, u.MainPID}, procfs(u.Proc))
	defer releaseAll(main)
	if err != nil {
		return err
	}
	for _, p := range main {
		if err := p.bears(u.Signal); err != nil {
			return err
		}
	}
	return u.Kill(ctx, u.Name, u.Signal)
}
