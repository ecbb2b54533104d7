package agent

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

func TestLastPassAndStop(t *testing.T) {
	noticed := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		name       string
		source     string
		lead       time.Duration // 0: no deadline
		last, stop time.Duration // after the notice; 0: never
	}{
		{"EC2's two minutes", preemption.SourceEC2, 120 * time.Second, 98 * time.Second, 67500 * time.Millisecond},
		{"an hour", preemption.SourceOperator, time.Hour, 3600*time.Second - 365*time.Second, 3600*time.Second - 395500*time.Millisecond},
		{"half a minute", preemption.SourceManual, 30 * time.Second, 22 * time.Second, -8500 * time.Millisecond},
		{"less than the grace", preemption.SourceManual, 12 * time.Second, 5 * time.Second, -25500 * time.Millisecond},
		{"next to nothing", preemption.SourceManual, 2 * time.Second, 500 * time.Millisecond, -30 * time.Second},
		{"a rehearsal", preemption.SourceRehearsal, 120 * time.Second, 103 * time.Second, 0},
		{"no deadline", preemption.SourceManual, 0, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := preemption.Notice{Source: row.source, ID: "x", Kind: preemption.KindTerminate, SeenAt: noticed}
			if row.lead != 0 {
				n.Deadline = noticed.Add(row.lead)
			}
			a := &Agent{}
			a.workloads.limits = &a.limits
			a.limits.Store(&limits{Drain: Default().Drain})
			i := preemption.Open(n)
			after := func(at time.Time) time.Duration {
				if at.IsZero() {
					return 0
				}
				return at.Sub(noticed)
			}
			w := &watched{Workload: &workloads.Workload{Grace: 30 * time.Second}}
			if got := after(a.limits.lastPassAt(i)); got != row.last {
				t.Errorf("the last pass begins %s after the notice, want %s", got, row.last)
			}
			if got := after(a.workloads.stopAt(i, w)); got != row.stop {
				t.Errorf("stopped %s after the notice, want %s", got, row.stop)
			}
		})
	}
}

// What was done about workloads survives a restart. After a boot the processes that were told or asked to end are gone; but
// it still counts that a workload was told that the machine stays.
func TestAttentionSurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workloads.json")
	first, err := openAttention(path, "boot-1", new(durable.Beside))
	if err != nil {
		t.Fatal(err)
	}
	note := func(name string, d attended) {
		if _, err := first.amend(name, func(to *attended) { *to = d }); err != nil {
			t.Fatal(err)
		}
	}
	told := workloads.Word{Phase: workloads.PhaseNoticed, Incident: "inc-1"}
	note("a", attended{Word: told, Arrived: true, Incident: "inc-1", Processes: []workloads.Identity{{PID: 7, Started: 8, Boot: "boot-1"}}, Stopping: true})
	note("b", attended{Word: workloads.Word{Phase: workloads.PhaseWithdrawn, Incident: "inc-0"}, Arrived: true})
	for boot, want := range map[string]bool{"boot-1": true, "boot-2": false} {
		again, err := openAttention(path, boot, new(durable.Beside))
		if err != nil {
			t.Fatal(err)
		}
		a, b := again.of("a"), again.of("b")
		if a.Arrived != want || a.Stopping != want || (len(a.Processes) == 1) != want || a.Word.Incident != "inc-1" {
			t.Errorf("in %s: got %+v", boot, a)
		}
		if !b.Arrived {
			t.Errorf("in %s: got %+v, want no second withdrawal", boot, b)
		}
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if torn, err := openAttention(path, "boot-1", new(durable.Beside)); err == nil || torn.of("a").Arrived {
		t.Errorf("got %v, want an error and nothing known", err)
	}
}

// catches is a process that catches SIGPWR. It lives until its stdin is closed.
func catches(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "trap : PWR; echo ready; while :; do read line; done")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// attending is an agent that does nothing but look after workloads.
func attending(t *testing.T, dir string, all ...*watched) *Agent {
	a := &Agent{log: slog.New(slog.DiscardHandler)}
	a.limits.Store(&limits{Drain: Default().Drain})
	a.workloads = attendant{log: a.log, incidents: &a.incidents, limits: &a.limits, nudge: func() {}, all: all}
	var err error
	if a.incidents.Keeper, err = preemption.OpenKeeper[work](preemption.KeeperConfig{Dir: dir, Log: a.log, Clock: func() preemption.Moment { return preemption.Moment{Wall: time.Now()} }}); err != nil {
		t.Fatal(err)
	}
	if a.workloads.attention, err = openAttention(filepath.Join(dir, "workloads.json"), "", new(durable.Beside)); err != nil {
		t.Fatal(err)
	}
	return a
}

// A webhook tries for as long as there is time, and meanwhile the status shows what is wrong.
func TestTroubleOfAWebhookIsShown(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w, err := workloads.Settings{Name: "w", Type: "exec", Tell: workloads.TellSettings{Webhook: workloads.WebhookSettings{URL: "http://127.0.0.1:1/x"}}}.Open(nil, "")
		if err != nil {
			t.Fatal(err)
		}
		a := attending(t, dir)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { a.workloads.keepTold(ctx, &watched{Workload: w, again: make(chan struct{}, 1)}); close(ended) }()
		notice := preemption.Notice{Source: preemption.SourceManual, ID: "x", Kind: preemption.KindManual, SeenAt: time.Now(), Deadline: time.Now().Add(2 * time.Minute)}
		if _, _, err := a.incidents.Join(notice); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if d := a.workloads.attention.of("w"); d.Arrived || d.GivenUp || !strings.Contains(d.Trouble, "connection refused") {
			t.Errorf("got %+v, want it tried, and why it has not arrived", d)
		}
		stop()
		<-ended
	})
}

// A word that does not arrive is tried again while there is time, and its failure shown. After a withdrawal it no longer
// holds.
func TestWordsAreTriedAgain(t *testing.T) {
	pid := catches(t)
	file := filepath.Join(t.TempDir(), "w.pid")
	w, err := workloads.Settings{Name: "w", Type: "pid_file", PIDFile: file, Tell: workloads.TellSettings{Signal: "SIGPWR"}}.Open(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{log: slog.New(slog.DiscardHandler)}
		a.limits.Store(&limits{Drain: Default().Drain})
		a.workloads = attendant{log: a.log, incidents: &a.incidents, limits: &a.limits}
		var err error
		if a.incidents.Keeper, err = preemption.OpenKeeper[work](preemption.KeeperConfig{Dir: dir, Log: a.log, Clock: func() preemption.Moment { return preemption.Moment{Wall: time.Now()} }}); err != nil {
			t.Fatal(err)
		}
		if a.workloads.attention, err = openAttention(filepath.Join(dir, "workloads.json"), "", new(durable.Beside)); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		watched := &watched{Workload: w, again: make(chan struct{}, 1)}
		go func() { a.workloads.keepTold(ctx, watched); close(ended) }()
		notice := preemption.Notice{Source: preemption.SourceManual, ID: "x", Kind: preemption.KindManual, SeenAt: time.Now(), Deadline: time.Now().Add(2 * time.Minute)}
		if _, _, err := a.incidents.Join(notice); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if d := a.workloads.attention.of("w"); d.Arrived || !strings.Contains(d.Trouble, "no such file") {
			t.Errorf("got %+v, want the trouble shown", d)
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0o644); err != nil {
			t.Fatal(err)
		}
		time.Sleep(mostAgain)
		if d := a.workloads.attention.of("w"); !d.Arrived || d.Trouble != "" {
			t.Errorf("got %+v, want it told", d)
		}
		notice.Withdrawn = true
		if _, _, err := a.incidents.Join(notice); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if d := a.workloads.attention.of("w"); d.Word.Incident != "" {
			t.Errorf("got %+v, want it forgotten: a signal cannot be taken back", d)
		}
		stop()
		<-ended
	})
}
