package workloads

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Signal sends a signal to every process that its target means and that can bear it.
//
// Most processes die of a signal that they do not catch: a JVM without Spark's decommissioning dies of SIGPWR. So the signal
// goes only to a process that has a handler for it, unless its default action is harmless (signal(7)). A process that takes
// the signal by signalfd(2) has no handler and is refused, because it looks like one that blocks the signal for a moment. A
// Go program has a handler for every signal, whether it listens or not, also for those that would end it.
type Signal struct {
	Signal syscall.Signal
	Target Target
	Proc   string // where proc(5) is; empty: /proc

	had *had // nil: who had a word's signal is not remembered
}

func (s Signal) String() string { return fmt.Sprintf("%s to %s", signalName(s.Signal), s.Target) }

// Tell implements Action. It does not wait for what the processes do. A process that cannot be told does not keep the others
// from being told. When the word is told again for its sake, the others get no second signal.
func (s Signal) Tell(ctx context.Context, w Word) error {
	told, err := hold(ctx, s.Target, procfs(s.Proc))
	defer releaseAll(told)
	had := s.had.of(w)
	if isNobody(err) && len(had) > 0 {
		err = nil // they have ended since, as they were told to
	}
	errs := []error{err}
	for _, h := range told {
		who := whose{h.pid, h.started}
		if had[who] {
			continue
		}
		err := h.send(s.Signal)
		if err == nil {
			had[who] = true
		}
		errs = append(errs, err)
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("%s: %w", s, err)
		}
	}
	return errors.Join(errs...)
}

// had are the processes that had a word's signal. To many programs a second signal says more than the first: a second SIGTERM
// ends them at once. One goroutine at a time tells an action.
type had struct {
	word string
	who  map[whose]bool
}

// of returns those of a word, for the caller to add to. Those of an earlier word are forgotten.
func (h *had) of(w Word) map[whose]bool {
	if h == nil {
		return map[whose]bool{}
	}
	if word := w.Incident + "/" + strings.Join(w.same(), "/"); h.who == nil || h.word != word {
		h.word, h.who = word, map[whose]bool{}
	}
	return h.who
}

// held is a process with a handle that, while it is open, means this process and no other.
type held struct {
	process
	handle *handle
}

// hold opens a handle on a process of this boot, or returns errGone.
func (p procfs) hold(id Identity) (held, error) {
	h, err := openHandle(id.PID)
	if err != nil {
		return held{}, err
	}
	// The handle was opened first: if this is the process that was meant, the handle holds it.
	is, err := p.read(id.PID)
	if err == nil && is.started != id.Started {
		err = errGone
	}
	if err != nil {
		h.close()
		return held{}, err
	}
	return held{is, h}, nil
}

// hold finds a target's processes and opens handles on them. A number may come to mean another process at any time, so it
// looks twice and opens the handles in between: a process that is the same at both looks is the one that its handle holds.
// If it returns processes and an error, the error is about other ones.
func hold(ctx context.Context, target Target, proc procfs) (all []held, err error) {
	first, err := target.find(ctx, proc)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, p := range first {
		h, err := openHandle(p.pid)
		switch {
		case errors.Is(err, errGone):
			errs = append(errs, fmt.Errorf("%s ended before it could be told", p))
		case err != nil:
			errs = append(errs, err)
		default:
			all = append(all, held{p, h})
		}
	}
	second, err := target.find(ctx, proc)
	if err != nil {
		releaseAll(all)
		return nil, errors.Join(append(errs, err)...)
	}
	now := map[int]process{}
	for _, p := range second {
		now[p.pid] = p
	}
	kept := all[:0]
	for _, h := range all {
		switch p, ok := now[h.pid]; {
		case !ok:
			errs = append(errs, fmt.Errorf("%s ended before it could be told", h.process), h.handle.close())
		case p.started != h.started:
			errs = append(errs, fmt.Errorf("%s ended, and its number went to %s, which nobody meant", h.process, p), h.handle.close())
		default:
			h.process = p
			kept = append(kept, h)
		}
	}
	return kept, errors.Join(errs...)
}

func releaseAll(all []held) {
	for _, h := range all {
		h.handle.close()
	}
}

// send signals the process, unless the signal would harm it.
func (h held) send(s syscall.Signal) error {
	if err := h.bears(s); err != nil {
		return err
	}
	switch err := h.handle.signal(s); {
	case errors.Is(err, errGone):
		return fmt.Errorf("%s ended before it could be told", h.process)
	case err != nil:
		return fmt.Errorf("signal %s: %w", h.process, err)
	}
	return nil
}

// bears says why a process must not get a signal, or would not notice it; nil: it may get it.
func (p process) bears(s syscall.Signal) error {
	if err := p.spared(); err != nil {
		return err
	}
	name := signalName(s)
	switch {
	case p.catches(s):
		return nil
	case p.ignores(s):
		return fmt.Errorf("%s ignores %s", p, name)
	}
	switch s { // what the kernel does with a signal that is not caught: signal(7)
	case unix.SIGCHLD, unix.SIGCONT, unix.SIGURG, unix.SIGWINCH:
		return nil
	case unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		return fmt.Errorf("%s does not catch %s and would be halted by it", p, name)
	}
	return fmt.Errorf("%s does not catch %s and would die of it", p, name)
}

// parseSignal understands SIGPWR, PWR and pwr, and refuses signals that no process can catch.
func parseSignal(name string) (syscall.Signal, error) {
	full := strings.ToUpper(name)
	if !strings.HasPrefix(full, "SIG") {
		full = "SIG" + full
	}
	switch s := unix.SignalNum(full); s {
	case 0:
		return 0, fmt.Errorf("signal %q: there is none of that name; SIGPWR and SIGTERM are two", name)
	case unix.SIGKILL, unix.SIGSTOP:
		return 0, fmt.Errorf("signal %s: no process can catch it, so it tells nothing", full)
	default:
		return s, nil
	}
}

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}
