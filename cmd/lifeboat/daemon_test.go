package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
)

// A daemon that cannot start waits before it exits if a service manager would start it again. After a fault that another try does not mend,
// or a failure after it had run, it exits at once.
func TestUnstartedDaemonLingers(t *testing.T) {
	failed, faults := errors.New("the key is everybody's"), usagef("the file has faults")
	for _, c := range []struct {
		name    string
		manager string
		ran     time.Duration
		err     error
		want    time.Duration // from start to exit
		code    int
	}{
		{"at the start", "/nonexistent", 2 * time.Second, failed, tryAgain, exitFailed},
		{"later", "/nonexistent", time.Hour, failed, time.Hour, exitFailed},
		{"for good", "/nonexistent", 0, faults, 0, exitUsage},
		{"by hand", "", 0, failed, 0, exitFailed},
		{"not at all", "/nonexistent", time.Second, nil, time.Second, exitDone},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("NOTIFY_SOCKET", c.manager)
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := paced(func(*cobra.Command, []string) error {
					time.Sleep(c.ran)
					return c.err
				})(nil, nil)
				linger(t.Context(), err)
				if got := time.Since(began); got != c.want || !errors.Is(err, c.err) {
					t.Errorf("got %v after %s, want %v after %s", err, got, c.err, c.want)
				}
				if got := exitCode(err, true); err != nil && got != c.code {
					t.Errorf("got exit code %d, want %d", got, c.code)
				}
			})
		})
	}
}

// A daemon outlives the reader of its log, and a reader that does not read.
func TestDaemonOutlivesItsLog(t *testing.T) {
	const asked = "LIFEBOAT_TEST_LOG"
	if os.Getenv(asked) != "" { // the daemon
		f := daemonFlags{log: "info", format: "text"}
		log, end, err := f.logger(os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		for range 2000 { // of 60 bytes and more: a pipe has room for 64 KiB
			log.Info("nobody hears this")
		}
		end()
		os.Exit(7)
	}
	for name, gone := range map[string]bool{"gone": true, "does not read": false} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if gone {
				r.Close()
			}
			defer w.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestDaemonOutlivesItsLog$")
			cmd.Env, cmd.Stderr = append(os.Environ(), asked+"=1"), w
			if err := cmd.Run(); cmd.ProcessState.ExitCode() != 7 {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// timeout(1) sends its signal to a program and then to its group: the second must not kill the program.
func TestSignalThatComesTwiceIsOne(t *testing.T) {
	const asked = "LIFEBOAT_TEST_TOLD"
	if os.Getenv(asked) != "" { // the program
		told := untilTold()
		for range 50 {
			if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			<-told.Done()
			<-time.After(time.Millisecond)
		}
		os.Exit(7)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSignalThatComesTwiceIsOne$")
	cmd.Env = append(os.Environ(), asked+"=1")
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("it ended with %v", err)
	}
}
