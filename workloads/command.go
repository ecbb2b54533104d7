package workloads

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// question is a program that answers by its exit status, and perhaps by what it prints.
type question []string

const (
	// longestAnswer is how many bytes of a program's output are read; the rest is thrown away.
	longestAnswer = 64 << 10
	// lastBytes is how long output may still arrive once the program and its whole group have ended.
	lastBytes = 100 * time.Millisecond
)

// ask runs the program. When ctx ends it kills the program and its process group; a program that hangs in the kernel is
// waited for until the kill ends it.
func (q question) ask(ctx context.Context) (status int, answer string, err error) {
	out, in, err := os.Pipe()
	if err != nil {
		return 0, "", err
	}
	defer out.Close()
	program := exec.Command(q[0], q[1:]...)
	program.Dir, program.Env, program.Stdout = "/", inherited(), in
	program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = program.Start()
	in.Close()
	if err != nil {
		return 0, "", fmt.Errorf("ask %s: %w", q[0], err)
	}
	printed := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(out, longestAnswer))
		io.Copy(io.Discard, out) // or the program would block on a full pipe
		printed <- string(b)
	}()
	pid := program.Process.Pid
	ended := deathOf(pid)
	select {
	case <-ended:
	case <-ctx.Done():
		unix.Kill(-pid, unix.SIGKILL)
		<-ended
		err = fmt.Errorf("ask %s: %w", q[0], context.Cause(ctx))
	}
	unix.Kill(-pid, unix.SIGKILL) // kill what it left behind
	program.Wait()                // its error is in ProcessState too
	out.SetReadDeadline(time.Now().Add(lastBytes))
	answer = <-printed
	if state := program.ProcessState.Sys().(syscall.WaitStatus); err == nil && state.Signaled() {
		err = fmt.Errorf("ask %s: killed by %s", q[0], signalName(state.Signal()))
	}
	return program.ProcessState.ExitCode(), answer, err
}

// yes runs a program that answers with status 0 for yes and 1 for no. Any other status means that it is not known.
func (q question) yes(ctx context.Context) (bool, error) {
	status, _, err := q.ask(ctx)
	switch {
	case err != nil:
		return false, err
	case status > 1:
		return false, fmt.Errorf("ask %s: exit status %d, which means neither yes nor no", q[0], status)
	}
	return status == 0, nil
}

// Executor is a part of a workload under the name that its app has for it.
type Executor struct{ App, ID string }

// Bounds on the apps and executors of a workload, which go with every heartbeat.
const (
	mostApps      = 64
	mostExecutors = 256
	longestName   = 128 // in bytes: a coordinator takes no longer one
)

// list runs a program that prints a line APP for each app that runs, or a line APP EXECUTOR for each of its executors. The
// error says what the lists leave out.
func (q question) list(ctx context.Context) (apps []string, executors []Executor, err error) {
	status, answer, err := q.ask(ctx)
	if err != nil {
		return nil, nil, err
	}
	if status != 0 {
		return nil, nil, fmt.Errorf("ask %s: exit status %d", q[0], status)
	}
	return parseList(q[0], answer)
}

// parseList reads such lines, and keeps the lists within their bounds.
func parseList(from, answer string) (apps []string, executors []Executor, err error) {
	if len(answer) == longestAnswer { // its last line may be cut
		answer = answer[:strings.LastIndexByte(answer, '\n')+1]
		err = fmt.Errorf("%s prints more than %d bytes: the rest is left out", from, longestAnswer)
	}
	known, listed := map[string]bool{}, map[Executor]bool{}
	for line := range strings.Lines(answer) {
		words := strings.Fields(strings.ToValidUTF8(line, "?"))
		if len(words) == 0 {
			continue
		}
		app := words[0]
		if len(words) > 2 || slices.ContainsFunc(words, unspeakable) {
			err = fmt.Errorf("%s prints the line %.40q: want APP or APP EXECUTOR, printable and of at most %d bytes each", from, line, longestName)
			continue
		}
		if !known[app] {
			if len(apps) == mostApps {
				err = fmt.Errorf("%s names more than %d apps: the rest is left out", from, mostApps)
				continue
			}
			known[app] = true
			apps = append(apps, app)
		}
		if len(words) < 2 {
			continue
		}
		switch e := (Executor{app, words[1]}); {
		case listed[e]:
		case len(executors) == mostExecutors:
			err = fmt.Errorf("%s names more than %d executors: the rest is left out", from, mostExecutors)
		default:
			listed[e] = true
			executors = append(executors, e)
		}
	}
	return apps, executors, err
}

// unspeakable reports whether a word is no name that a heartbeat may carry.
func unspeakable(word string) bool {
	return len(word) > longestName || strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsPrint(r) })
}
