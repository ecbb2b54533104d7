package workloads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lifeboat/lifeboat/await"
)

// Hook runs a program with the word as a line of JSON on its stdin and as LIFEBOAT_* in its environment.
//
// The program is a child of a supervisor, which is this binary started anew (Supervise) in a session of its own. So the
// program goes on when this process is restarted or killed, and the next process can read how it ended. In one boot it runs
// once for a word, however often that word is told; after a reboot it runs again, since the processes that it told are gone.
// A shell could be the supervisor where there is one, but it could not stop a group of processes without the risk that its
// number means another group by then.
//
// When the context's deadline passes, the program's process group gets SIGTERM, and SIGKILL five seconds later or once the
// program itself has ended. A cancelled context stops only the waiting. So a caller that hears of another deadline cancels,
// and tells the same word again. The word that a notice is withdrawn first stops, in the same way, what still runs for the
// incident's earlier words.
type Hook struct {
	Name string // unique among the hooks with the same State
	Argv []string
	Env  []string // KEY=VALUE, on top of our own environment
	Dir  string   // empty: /
	// State is the directory for what must outlive this process. It is best in memory (a RuntimeDirectory= that is
	// preserved): it need not outlive the boot, and then no slow or full disk keeps a program from starting.
	State string
	// Detach, if set, moves a process out of this process's control group, so that the service manager does not kill both.
	// It is called before the program starts.
	Detach func(ctx context.Context, pid int) error
}

const (
	grace        = 5 * time.Second        // between SIGTERM and SIGKILL
	detachLimit  = 2 * time.Second        // the program starts even if the service manager takes longer
	announcement = 10 * time.Millisecond  // how often to look for a supervisor that is starting
	burial       = 3 * time.Second        // from SIGKILL to the supervisor's end, on a busy machine
	again        = time.Second            // between two attempts to start what could not be started
	checkOutput  = 250 * time.Millisecond // how often the supervisor looks at the size of what is printed
)

func (h Hook) String() string { return "hook " + h.Name }

// Tell implements Action. It returns when the program has ended: nil if that was with status 0.
func (h Hook) Tell(ctx context.Context, w Word) error {
	err := h.tell(ctx, w)
	for tries := 1; passes(err); tries++ {
		Trouble(ctx, fmt.Errorf("%s: not started yet: %w", h, err))
		if !await.Sleep(ctx, again) {
			err = GivenUp(ctx, tries, err)
			break
		}
		err = h.tell(ctx, w)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", h, err)
	}
	return nil
}

// passes reports whether a program that could not be started can be a moment later: the machine is out of processes, memory, files or
// room, or the program is being written (execve(2), fork(2)).
func passes(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.Contains([]syscall.Errno{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.ETXTBSY}, errno)
}

func (h Hook) tell(ctx context.Context, w Word) error {
	var earlier error
	if w.Phase == PhaseWithdrawn {
		earlier = h.stopEarlier(w)
	}
	r, err := openRun(h.State, w, h.Name)
	if err != nil {
		return errors.Join(earlier, err)
	}
	return errors.Join(earlier, h.run(ctx, r, w))
}

// run starts the program unless it was started before, and waits for its end.
func (h Hook) run(ctx context.Context, r run, w Word) error {
	var started bool
	var detached error
	for {
		lock, err := r.lock()
		switch {
		case errors.Is(err, errRuns):
			if err := h.follow(ctx, r); err != nil {
				return errors.Join(err, detached)
			}
			continue
		case err != nil:
			return err
		}
		// It does not run. Either it has ended, or it has not begun.
		if started || r.begun() {
			lock.Close()
			err := r.outcome()
			if err != nil {
				err = errors.Join(err, detached)
			}
			return err
		}
		if ctx.Err() != nil {
			lock.Close()
			return fmt.Errorf("not started: %w", whyOver(ctx))
		}
		started = true
		if detached, err = h.start(ctx, r, w, lock); err != nil {
			return err
		}
	}
}

// start starts a supervisor, which takes over the lock. The supervisor starts the program once the pipe is closed: by this
// process, or because this process is gone.
func (h Hook) start(ctx context.Context, r run, w Word, lock *os.File) (detached, err error) {
	defer lock.Close()
	if err := r.prepare(job{h.Argv, h.Dir}, w); err != nil {
		return nil, err
	}
	output, err := r.openOutput()
	if err != nil {
		return nil, err
	}
	defer output.Close()
	gate, open, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer open.Close()

	// Not os.Executable: the file of that name may be a new version by now, or gone.
	supervisor := exec.Command("/proc/self/exe")
	supervisor.Args = []string{os.Args[0], SupervisorArg, r.dir}
	supervisor.Dir = "/"
	supervisor.Env = h.environ(w)
	supervisor.Stdout, supervisor.Stderr = output, output
	supervisor.ExtraFiles = []*os.File{lockFD - 3: lock, gateFD - 3: gate}
	supervisor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = supervisor.Start()
	gate.Close()
	if err != nil {
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	// Write down the supervisor before the gate opens, so that it can be found from the first moment at which it runs. It
	// does the same for itself, in case this process is gone by now, so either is enough.
	_ = r.introduce(supervisor.Process.Pid)
	// Wait only reaps it. The supervisor may outlive this process, so nothing waits for this goroutine.
	go supervisor.Wait()

	if h.Detach != nil {
		ctx, cancel := context.WithTimeout(ctx, detachLimit)
		defer cancel()
		if err := h.Detach(ctx, supervisor.Process.Pid); err != nil {
			detached = fmt.Errorf("move it out of our control group: %w", err)
		}
	}
	return detached, nil
}

// follow waits for the end of a supervisor. It returns nil when the caller should look again.
func (h Hook) follow(ctx context.Context, r run) error {
	s, err := r.supervisor()
	if err != nil { // it is starting, or gone, and then its lock will be free in a moment
		select {
		case <-time.After(announcement):
			return nil
		case <-ctx.Done():
			return whyOver(ctx)
		}
	}
	defer s.handle.close()
	switch err := s.handle.wait(ctx); {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return r.stop(s, "the time is up")
	default:
		return fmt.Errorf("it goes on, unwatched: %w", whyOver(ctx))
	}
}

// stopEarlier stops the programs that run for earlier words of the incident.
func (h Hook) stopEarlier(w Word) error {
	runs, err := earlierRuns(h.State, w, h.Name)
	if err != nil {
		return err
	}
	errs := make([]error, len(runs))
	var wg sync.WaitGroup
	for i, r := range runs {
		wg.Go(func() {
			s, err := r.supervisor()
			if err != nil {
				return // never began, or has ended
			}
			defer s.handle.close()
			if err := r.stop(s, "the notice was withdrawn"); err != nil {
				errs[i] = fmt.Errorf("stop %s: %w", filepath.Base(r.dir), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// inherited is this process's environment, without the variables that are between the service manager and this process alone
// (sd_notify(3), sd_listen_fds(3)).
func inherited() (env []string) {
	for _, kv := range os.Environ() {
		key, _, _ := strings.Cut(kv, "=")
		switch key {
		case "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_PIDFDID":
		default:
			env = append(env, kv)
		}
	}
	return env
}

// environ is the inherited environment with the word in it. Every LIFEBOAT_ variable is always set: an empty one is not
// known.
func (h Hook) environ(w Word) []string {
	env := append(inherited(), h.Env...)
	var deadline, remaining, rehearsal string
	if !w.Deadline.IsZero() {
		deadline = w.Deadline.UTC().Format(time.RFC3339)
	}
	if w.RemainingSeconds != nil {
		remaining = strconv.Itoa(int(*w.RemainingSeconds)) // whole, for the arithmetic of shells
	}
	if w.Rehearsal {
		rehearsal = "true"
	}
	for _, kv := range [][2]string{
		{"PHASE", string(w.Phase)}, {"NODE", w.Node}, {"INCIDENT", w.Incident}, {"KIND", w.Kind}, {"SOURCE", w.Source},
		{"STANCE", w.Stance}, {"DEADLINE", deadline}, {"REMAINING_SECONDS", remaining}, {"REASON", w.Reason},
		{"REHEARSAL", rehearsal},
	} {
		// A zero byte would end the variable, and Go would not start the program.
		env = append(env, "LIFEBOAT_"+kv[0]+"="+strings.ReplaceAll(kv[1], "\x00", ""))
	}
	return env
}

// line is the word as one line of JSON.
func (w Word) line() ([]byte, error) {
	b, err := json.Marshal(w)
	return append(b, '\n'), err
}
