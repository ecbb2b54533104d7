package agent

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
	"github.com/lifeboat/lifeboat/workloads"
)

// slowUnits is a service manager that takes its time to say what a unit does. Its unit runs until it is killed.
type slowUnits struct{ workloads.Units }

func (slowUnits) Look(context.Context, string) (systemd.Activity, error) {
	time.Sleep(3 * time.Second)
	return systemd.Activity{State: "active", Processes: 1}, nil
}
func (slowUnits) Stop(context.Context, string) error                 { time.Sleep(time.Second); return nil }
func (slowUnits) Kill(context.Context, string, syscall.Signal) error { return nil }

// A notice may leave so little time that a workload is asked to end before the first look at it since then has ended. That look
// does not undo what is known of the stop.
func TestStopIsKnownWhileTheFirstLookLasts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w, err := workloads.Settings{Name: "w", Type: "unit", Unit: "w.service", Await: true, Stop: true}.Open(slowUnits{}, "")
		if err != nil {
			t.Fatal(err)
		}
		a := attending(t, dir, &watched{Workload: w, again: make(chan struct{}, 1)})
		ctx, stop := context.WithCancel(t.Context())
		ended := await.Beside(func() { a.workloads.Run(ctx) })
		defer func() { stop(); <-ended; time.Sleep(time.Minute) }() // a look that is left behind ends by itself
		time.Sleep(9 * time.Second)                                 // it is looked at from the second 5 to 8, and then from 10 on
		notice := preemption.Notice{Source: preemption.SourceGCE, ID: "preempted", Kind: preemption.KindPreempt, SeenAt: time.Now(), Deadline: time.Now().Add(30 * time.Second)}
		if _, _, err := a.incidents.Join(notice); err != nil {
			t.Fatal(err)
		}
		stopped := await.Beside(func() { a.workloads.stop(ctx) })
		defer func() { stop(); <-stopped }()
		time.Sleep(10 * time.Second)
		if d := a.workloads.attention.of("w"); !d.Stopping {
			t.Errorf("got %+v, want it known that the workload was asked to end", d)
		}
		if got := a.workloads.wire()[0].State; got != string(workloads.Stopping) {
			t.Errorf("its state is %s, want STOPPING", got)
		}
	})
}

// What a program printed goes into each heartbeat, and a message with half a character in it cannot be sent.
func TestTroubleCanBeSent(t *testing.T) {
	for _, said := range []string{"", "a" + strings.Repeat("ö", longestTrouble), "\xff\xfe", strings.Repeat("x", longestTrouble)} {
		got := short(said, longestTrouble)
		if !utf8.ValidString(got) || len(got) > longestTrouble+len("...") {
			t.Errorf("short(%q) = %q", said, got)
		}
	}
	if got := short("exit status 1: ö", longestTrouble); got != "exit status 1: ö" {
		t.Errorf("got %q", got)
	}
}

// The same goes for the trouble of a peer, which repeats the peer's words and paths of files.
func TestTroubleOfPeersCanBeSent(t *testing.T) {
	for _, said := range []string{"open /" + strings.Repeat("ö", 2000), "it cannot land p\xc3"} {
		got := apiProgress(migration.Progress{Peers: []migration.PeerProgress{{Node: "host-b", Trouble: said}}}).Peers[0].Trouble
		if !utf8.ValidString(got) || len(got) > mostTold || got == "" {
			t.Errorf("got %d bytes of trouble, %q: want UTF-8 of at most %d", len(got), got, mostTold)
		}
	}
}

// A coordinator takes no account with a reason that is too long. A reason names up to three peers that were in trouble.
func TestReasonsCanBeTold(t *testing.T) {
	said := manifest.Entry{ID: "cache/-/a", Outcome: manifest.Lost, Reason: strings.Repeat("host-b: no route to hóst; ", 100)}
	account := func(yield func(manifest.Entry, error) bool) { yield(said, nil) }
	for e, err := range new(course).legible(account) {
		if err != nil || !utf8.ValidString(e.Reason) || len(e.Reason) > mostTold || len(e.Reason) < mostTold/2 {
			t.Errorf("got %d bytes of a reason (%v), want UTF-8 of at most %d", len(e.Reason), err, mostTold)
		}
	}
	if e := apiEntry(said); !utf8.ValidString(e.Reason) || len(e.Reason) > mostTold {
		t.Errorf("got %d bytes of a reason in the account for peers, want UTF-8 of at most %d", len(e.Reason), mostTold)
	}
}

// mostTold is the longest text that a coordinator takes.
const mostTold = 1024
