package interop_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
)

// The paths by which polls of the mock are counted.
const (
	pathAction    = "spot/instance-action"
	pathTarget    = "autoscaling/target-lifecycle-state"
	pathScheduled = "events/maintenance/scheduled"
)

// patience is how long a test waits for what it expects.
const patience = time.Minute

// TestEC2 runs our source against AWS's own mock, version 2 of the service only.
// https://github.com/aws/amazon-ec2-metadata-mock
func TestEC2(t *testing.T) {
	if os.Getenv("LIFEBOAT_INTEROP") != "1" {
		t.Skip("builds AWS's mock from the module proxy and takes real time: set LIFEBOAT_INTEROP=1")
	}
	mock := filepath.Join(t.TempDir(), "ec2-metadata-mock")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", mock, "github.com/aws/amazon-ec2-metadata-mock/cmd")
	build.Dir = filepath.Join("..", "tools", "aemm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the mock: %v\n%s", err, out)
	}

	for _, action := range []string{"terminate", "stop", "hibernate"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			l := listen(t, serve(t, mock, freeAddress(t), "spot", "--action", action, "--rebalance-delay-sec", "3600"))
			got := l.next()
			lead := got.Deadline.Sub(got.SeenAt)
			if action == "hibernate" {
				lead += 2 * time.Minute // a hibernation has no lead
			}
			if got.Kind != preemption.Kind(action) || got.Withdrawn || (lead-2*time.Minute).Abs() > 2*time.Second {
				t.Errorf("heard %+v, want %s two minutes ahead", got, action)
			}
			l.silent(pathAction, 120) // though the mock shows another time at each poll
		})
	}
	t.Run("rebalance, then interruption", func(t *testing.T) {
		t.Parallel()
		l := listen(t, serve(t, mock, freeAddress(t), "spot", "--action", "stop", "--mock-delay-sec", "4", "--rebalance-delay-sec", "0"))
		first, second := l.next(), l.next()
		if first.Kind != preemption.KindRebalance || !first.Deadline.IsZero() || second.Kind != preemption.KindStop || first.ID == second.ID {
			t.Errorf("heard %+v and %+v, want rebalance without a deadline, and stop", first, second)
		}
		l.silent(pathAction, 30)
	})
	from := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	for code, kind := range map[string]preemption.Kind{
		"instance-stop": preemption.KindStop, "instance-retirement": preemption.KindRetirement, "instance-reboot": preemption.KindReboot,
		"system-reboot": preemption.KindReboot, "system-maintenance": preemption.KindMaintenance,
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			l := listen(t, serve(t, mock, freeAddress(t), "events", "--code", code, "--state", "active", "--not-before", from.Format(time.RFC3339)))
			if got := l.next(); got.Kind != kind || !got.Deadline.Equal(from) || !got.Appointed {
				t.Errorf("heard %+v, want %s at %v", got, kind, from)
			}
			l.silent(pathAction, 30)
		})
	}
	for _, state := range []string{"canceled", "completed"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			l := listen(t, serve(t, mock, freeAddress(t), "events", "--code", "instance-stop", "--state", state, "--not-before", from.Format(time.RFC3339)))
			l.silent(pathScheduled, 1)
		})
	}
	t.Run("scale-in", func(t *testing.T) {
		t.Parallel()
		l := listen(t, serve(t, mock, freeAddress(t), "asglifecycle", "--asg-termination-delay-sec", "5"))
		l.silent(pathTarget, 1) // in service
		if got := l.next(); got.Kind != preemption.KindScaleIn || got.Withdrawn {
			t.Errorf("heard %+v, want scale-in", got)
		}
		l.silent(pathTarget, 3)
	})
	t.Run("restart without the notice", func(t *testing.T) {
		t.Parallel()
		address := freeAddress(t)
		ctx, kill := context.WithCancel(t.Context())
		defer kill()
		wait := start(t, ctx, mock, address, "spot", "--rebalance-delay-sec", "3600")
		l := listen(t, "http://"+address)
		first := l.next()
		kill()
		wait()
		l.silent("refused", 20) // a refused connection says nothing about the notice
		serve(t, mock, address, "spot", "--mock-delay-sec", "3600", "--rebalance-delay-sec", "3600")
		if got := l.next(); !got.Withdrawn || got.ID != first.ID { // and the old token is refused on the way
			t.Errorf("heard %+v, want the withdrawal of %+v", got, first)
		}
	})
}

// serve runs the mock until the test ends, and returns its address as a URL.
func serve(t *testing.T, mock, address string, args ...string) string {
	t.Helper()
	ctx, kill := context.WithCancel(context.Background()) // the test's own ends before the cleanup
	wait := start(t, ctx, mock, address, args...)
	t.Cleanup(func() { kill(); wait() })
	return "http://" + address
}

// start runs the mock until ctx ends, and returns when it listens. Wait returns when it has ended.
func start(t *testing.T, ctx context.Context, mock, address string, args ...string) (wait func()) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, mock, slices.Concat(args, []string{"--imdsv2", "--hostname", host, "--port", port})...)
	cmd.Env = []string{"HOME=" + t.TempDir()} // where it looks for settings
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return func() { _ = cmd.Wait() } // it was killed
		}
		if time.Since(began) > patience {
			t.Fatalf("the mock does not listen: %v", err)
		}
	}
}

// freeAddress returns a loopback address that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// listener is a running source, its notices and its polls.
type listener struct {
	t     *testing.T
	heard chan preemption.Notice

	mu    sync.Mutex     // guards what follows
	polls map[string]int // by path, if the answer was definite; else by result
}

// listen runs a source, ten times as fast as usual, until the test ends.
func listen(t *testing.T, endpoint string) *listener {
	t.Helper()
	l := &listener{t: t, heard: make(chan preemption.Notice, 100), polls: make(map[string]int)}
	source, err := preemption.NewEC2(preemption.EC2Config{Metadata: preemption.Metadata{
		Endpoint: endpoint, Poll: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler), Polled: l.count,
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background()) // the test's own ends before the cleanup
	var listening sync.WaitGroup
	listening.Go(func() {
		for {
			n, err := source.Next(ctx)
			if err != nil {
				return // Next fails only when ctx ends
			}
			l.heard <- n
		}
	})
	t.Cleanup(func() { cancel(); listening.Wait() })
	return l
}

func (l *listener) count(p preemption.Poll) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.Result == "ok" {
		l.polls[p.Path]++
	} else {
		l.polls[p.Result]++
	}
}

func (l *listener) counted(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.polls[what]
}

// next waits for the source's next notice.
func (l *listener) next() preemption.Notice {
	l.t.Helper()
	select {
	case n := <-l.heard:
		return n
	case <-time.After(patience):
		l.t.Fatalf("heard nothing in %v", patience)
		return preemption.Notice{}
	}
}

// silent waits for that many more polls, and fails the test if the source gives a notice meanwhile.
func (l *listener) silent(what string, more int) {
	l.t.Helper()
	until := l.counted(what) + more
	for began := time.Now(); l.counted(what) < until; {
		if time.Since(began) > patience {
			l.t.Fatalf("counted %d polls of %s in %v, want %d", l.counted(what), what, patience, until)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if len(l.heard) > 0 {
		l.t.Fatalf("heard %+v, want nothing", <-l.heard)
	}
}
