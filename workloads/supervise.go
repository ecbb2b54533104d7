package workloads

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SupervisorArg is the first argument of this binary when a Hook starts it as a supervisor. Then main must call Supervise
// with the other arguments before it does anything else, and exit with the result.
const SupervisorArg = "hook-supervisor"

// leftArg makes a supervisor one that only cuts what is printed by processes that a program has left behind.
const leftArg = "left"

// What a supervisor inherits besides its output, see exec.Cmd.ExtraFiles.
const (
	lockFD = 3 // the run's lock, held
	gateFD = 4 // a pipe; its end means that the program may start
)

// Supervise runs one hook's program and writes down how it ended. It returns this process's exit status.
func Supervise(args []string) int {
	do := supervise
	switch {
	case len(args) == 2 && args[0] == leftArg:
		do, args = cutLeft, args[1:]
	case len(args) != 1:
		fmt.Fprintf(os.Stderr, "%s is run by lifeboat itself, for a hook\n", SupervisorArg)
		return 2
	}
	if err := do(run{args[0]}); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", SupervisorArg, err)
		return 1
	}
	return 0
}

func supervise(r run) error {
	// The program must not keep the lock, nor the gate.
	syscall.CloseOnExec(lockFD)
	syscall.CloseOnExec(gateFD)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT) // caught, since the program would inherit an ignored signal

	if err := r.introduce(os.Getpid()); err != nil {
		return err
	}
	var j job
	if err := r.get(jobFile, &j); err != nil {
		return err
	}
	gate := make(chan struct{})
	go func() {
		defer close(gate)
		io.Copy(io.Discard, os.NewFile(gateFD, "gate"))
	}()
	select {
	case <-gate:
	case <-stop:
		return r.put(resultFile, result{Error: "it was not started", Stopped: true})
	}
	return errors.Join(r.put(resultFile, r.execute(j, stop)), r.leave())
}

// leave sees to it that what the program has left behind does not fill the file system with what it prints. A process of its own does that,
// because this one's end tells that the program has ended.
func (r run) leave() error {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for _, own := range []*os.File{os.Stdout, os.Stderr} {
		if err := unix.Dup3(int(null.Fd()), int(own.Fd()), 0); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(r.path(outputFile), os.O_WRONLY, 0)
	if err != nil || aloneWith(f) {
		return err
	}
	f.Close()
	left := exec.Command("/proc/self/exe")
	left.Args = []string{os.Args[0], SupervisorArg, leftArg, r.dir}
	left.Dir = "/"
	left.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return left.Start()
}

// cutLeft cuts the output of a run until no process has it open any more.
func cutLeft(r run) error {
	f, err := os.OpenFile(r.path(outputFile), os.O_WRONLY, 0) // it may be removed meanwhile
	if err != nil {
		return err
	}
	for ; !aloneWith(f); time.Sleep(checkOutput) {
		cut(f)
	}
	cut(f)
	return nil
}

// execute runs the program to its end.
func (r run) execute(j job, stop <-chan os.Signal) result {
	word, err := os.Open(r.path(wordFile))
	if err != nil {
		return result{Error: err.Error()}
	}
	defer word.Close()
	if len(j.Argv) == 0 {
		return result{Error: "no program"}
	}
	program, err := j.start(word)
	for ; passes(err); program, err = j.start(word) {
		select {
		case <-time.After(again):
		case <-stop:
			return result{Error: err.Error(), Stopped: true}
		}
	}
	if err != nil {
		return result{Error: err.Error()}
	}
	res := result{Stopped: r.attend(program.Process.Pid, stop)}
	r.cutOutput()
	program.Wait() // its error is in ProcessState too
	status := program.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		res.Signal = signalName(status.Signal())
	} else {
		res.Code = status.ExitStatus()
	}
	return res
}

// start starts the program as the leader of a session and a group of its own.
func (j job) start(word *os.File) (*exec.Cmd, error) {
	program := exec.Command(j.Argv[0], j.Argv[1:]...)
	program.Dir = j.Dir
	program.Stdin, program.Stdout, program.Stderr = word, os.Stdout, os.Stderr
	program.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return program, program.Start()
}

// attend returns when the program has ended, and reports whether it was stopped. It does not reap the program.
func (r run) attend(pid int, stop <-chan os.Signal) (stopped bool) {
	ended := deathOf(pid)
	look := time.NewTicker(checkOutput)
	defer look.Stop()
	var patience <-chan time.Time
	for {
		select {
		case <-ended:
			if stopped {
				unix.Kill(-pid, unix.SIGKILL) // kill what it left behind
			}
			return stopped
		case <-stop:
			if !stopped {
				stopped, patience = true, time.After(grace)
				unix.Kill(-pid, unix.SIGTERM)
			}
		case <-patience:
			unix.Kill(-pid, unix.SIGKILL)
		case <-look.C:
			r.cutOutput()
		}
	}
}
