package workloads

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/systemd"
)

// kind is how a workload is found on this machine.
type kind interface {
	// look says whether the workload runs, RUNNING, DONE or UNKNOWN, and lists its processes. known are those that it had.
	look(ctx context.Context, known []Identity) Look
	// terminate asks the workload to end and returns the processes that it asked, and their descendants. It does not wait.
	terminate(ctx context.Context, known []Identity) (asked []Identity, err error)
	// kill ends the processes that were asked, and their descendants.
	kill(ctx context.Context, asked []Identity) error
	// String says in a few words what it is.
	String() string
}

// unitKind is everything that runs in a unit.
type unitKind struct {
	name  string
	units Units
}

func (u unitKind) String() string { return u.name }

func (u unitKind) look(ctx context.Context, _ []Identity) Look {
	a, err := u.units.Look(ctx, u.name)
	switch {
	case errors.Is(err, systemd.ErrNoUnit): // a unit that never was, or a transient one that has ended
		return Look{State: Done, Trouble: err.Error()}
	case err != nil:
		return Look{State: Unknown, Trouble: err.Error()}
	case !a.Runs():
		return Look{State: Done}
	}
	return Look{State: Running, Count: a.Processes}
}

func (u unitKind) terminate(ctx context.Context, _ []Identity) ([]Identity, error) {
	return nil, u.units.Stop(ctx, u.name)
}

// kill leaves the stop job in place, so that nothing starts the unit anew.
func (u unitKind) kill(ctx context.Context, _ []Identity) error {
	return u.units.Kill(ctx, u.name, unix.SIGKILL)
}

// processKind is the processes that a target means, and those that it meant before.
type processKind struct {
	target Target
	proc   procfs
	boot   string
}

func (k processKind) String() string { return k.target.String() }

// living returns those of the processes that are still there, as they are now. A process that has got the number of another
// since is left out.
func (k processKind) living(known []Identity) (alive []process) {
	for _, id := range known {
		if p, err := k.proc.read(id.PID); err == nil && p.started == id.Started && id.Boot == k.boot {
			alive = append(alive, p)
		}
	}
	return alive
}

// find looks for the target's processes, and adds those that it meant earlier and that are still there: many pid files are
// removed before their process ends, and many processes change their name.
func (k processKind) find(ctx context.Context, known []Identity) ([]process, error) {
	all := k.living(known)
	found, err := k.target.find(ctx, k.proc)
	for _, p := range found {
		if !slices.ContainsFunc(all, func(q process) bool { return p.pid == q.pid }) {
			all = append(all, p)
		}
	}
	switch {
	case err == nil:
	case !isNobody(err):
		return all, err
	case k.proc.hidden():
		return all, fmt.Errorf("the processes of others are hidden from this one (ProtectProc=, hidepid=), so nobody may be somebody: %w", err)
	}
	return all, nil
}

func (k processKind) look(ctx context.Context, known []Identity) Look {
	all, err := k.find(ctx, known)
	l := Look{State: Running, Processes: k.identities(all), Count: len(all)}
	if len(all) == 0 {
		l.State = Done
	}
	if err != nil {
		l.Trouble = err.Error()
		if len(all) == 0 {
			l.State = Unknown
		}
	}
	return l
}

func (k processKind) identities(all []process) (ids []Identity) {
	for _, p := range all {
		ids = append(ids, Identity{p.pid, p.started, k.boot})
	}
	return ids
}

func (k processKind) terminate(ctx context.Context, known []Identity) ([]Identity, error) {
	all, err := k.find(ctx, known)
	if len(all) == 0 {
		return nil, err
	}
	heads := k.identities(all)
	asked := k.withOffspring(heads) // before the signal: the children of a parent that has ended get another parent
	// A find that failed must not keep the processes that it found from being asked.
	return asked, errors.Join(err, k.send(heads, unix.SIGTERM))
}

func (k processKind) kill(_ context.Context, asked []Identity) error {
	return k.send(k.withOffspring(asked), unix.SIGKILL)
}

// send signals exactly these processes, but for those that have ended.
func (k processKind) send(ids []Identity, s syscall.Signal) error {
	var errs []error
	for _, id := range ids {
		if err := k.sendOne(id, s); err != nil && !errors.Is(err, errGone) {
			errs = append(errs, fmt.Errorf("%s to process %d: %w", signalName(s), id.PID, err))
		}
	}
	return errors.Join(errs...)
}

func (k processKind) sendOne(id Identity, s syscall.Signal) error {
	if id.Boot != k.boot {
		return errGone
	}
	p, err := k.proc.hold(id)
	if err != nil {
		return err
	}
	defer p.handle.close()
	if err := p.spared(); err != nil {
		return err
	}
	return p.handle.signal(s)
}

// withOffspring adds the descendants of the processes, except those that were given to another parent.
func (k processKind) withOffspring(ids []Identity) []Identity {
	pids, err := k.proc.pids()
	if err != nil {
		return ids
	}
	children := map[int][]process{}
	for _, pid := range pids {
		if p, err := k.proc.read(pid); err == nil {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	all := slices.Clone(ids)
	for i := 0; i < len(all) && len(all) < mostProcesses; i++ { // all grows as it is walked
		// The first process's descendants are all processes, and this process's are its own: leave them out.
		if alive := k.living(all[i : i+1]); len(alive) == 0 || alive[0].spared() != nil {
			continue
		}
		for _, id := range k.identities(children[all[i].PID]) {
			if !slices.Contains(all, id) {
				all = append(all, id)
			}
		}
	}
	return all
}

// mostProcesses bounds what is remembered of one workload.
const mostProcesses = 4096

// execKind is a workload whose state a program reports.
type execKind struct{ running question }

func (e execKind) String() string { return "what " + e.running[0] + " says" }

func (e execKind) look(ctx context.Context, _ []Identity) Look {
	runs, err := e.running.yes(ctx)
	switch {
	case err != nil:
		return Look{State: Unknown, Trouble: err.Error()}
	case runs:
		return Look{State: Running}
	}
	return Look{State: Done}
}

func (e execKind) terminate(context.Context, []Identity) ([]Identity, error) { return nil, errNotOurs }
func (e execKind) kill(context.Context, []Identity) error                    { return errNotOurs }

var errNotOurs = errors.New("nobody knows its processes, so it cannot be stopped")
