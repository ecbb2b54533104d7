package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/preemption"
)

const movedName = "moved.jsonl"

// sickDisk is a disk whose health changes.
type sickDisk struct {
	stubDisks
	path   string
	health atomic.Int64
}

func (s *sickDisk) Snapshot() []disks.Disk {
	return []disks.Disk{{Path: s.path, Health: disks.Health(s.health.Load())}}
}

func (s *sickDisk) set(h disks.Health) { s.health.Store(int64(h)) }

// inRefuge is an agent that starts with the account of a drain in data_dir; the account has one line.
func inRefuge(t *testing.T, dir string, health disks.Health) (*Agent, *sickDisk) {
	t.Helper()
	data := filepath.Join(dir, "data")
	a, _ := onDisks(t)
	stub := &sickDisk{path: data}
	stub.set(health)
	a.disks.monitor = stub
	a.cfg.DataDir, a.cfg.Listen.Socket = data, filepath.Join(dir, "run", "agent.sock")
	a.disk = a.newDisk()
	var err error
	if a.incidents.Keeper, err = preemption.OpenKeeper[work](preemption.KeeperConfig{Dir: data, Log: slog.New(slog.DiscardHandler), Disk: a.disk.Beside}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(a.cfg.Listen.Socket), 0o700); err != nil {
		t.Fatal(err)
	}
	a.openRefuge(t.Context())
	return a, stub
}

// writes adds a line to an account.
func writes(t *testing.T, dir, name, line string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(line); err != nil {
		t.Fatal(err)
	}
}

// says fails the test unless the account holds exactly want.
func says(t *testing.T, dir, name, want string) {
	t.Helper()
	if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want || want != "" && err != nil {
		t.Errorf("%s in %s is %q (%v), want %q", name, dir, got, err, want)
	}
}

// A drain under which the disk of its account hangs is left behind, and another goes on with the account in the refuge. The
// account is brought home once the disk answers and the first drain has ended.
func TestAccountTakesRefuge(t *testing.T) {
	for name, hang := range map[string]func(a *Agent, stub *sickDisk) (thaw func()){
		"who watches the disks says so": func(_ *Agent, stub *sickDisk) func() {
			stub.set(disks.IOHang)
			return func() { stub.set(disks.Healthy) }
		},
		"nobody knows": func(a *Agent, _ *sickDisk) func() {
			answers := make(chan struct{})
			go a.disk.Do("what it hangs at", func() error { <-answers; return nil })
			return func() { close(answers) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				a, stub := inRefuge(t, dir, disks.Healthy)
				home, ends := a.incidents.Dir("inc-1"), make(chan struct{})
				writes(t, home, movedName, "one\n")
				thaw := make(chan func(), 1)
				var passes atomic.Int64
				began := time.Now()
				sum, err := a.refuge.carry(t.Context(), "inc-1", false, func(ctx context.Context, dir string) (manifest.Summary, error) {
					if passes.Add(1) == 1 {
						thaw <- hang(a, stub)
						<-ends
						if !isLeft(ctx) {
							t.Error("it was not left behind")
						}
						writes(t, dir, "lost.jsonl", "all of it\n")
						return manifest.Summary{}, errors.New("nobody hears this")
					}
					if dir == home || dir != a.refuge.accountDir("inc-1") {
						t.Errorf("the other keeps its account in %s", dir)
					}
					says(t, dir, movedName, "one\n")
					writes(t, dir, movedName, "two\n")
					return manifest.Summary{Moved: inventory.Count{Blocks: 2}}, nil
				})
				if took := time.Since(began); sum.Moved.Blocks != 2 || err != nil || took > drainPatience+2*lookAround {
					t.Errorf("got %+v, %v after %s", sum, err, took)
				}
				tending, stop := context.WithCancel(t.Context())
				defer stop()
				go a.refuge.Run(tending)
				time.Sleep(time.Minute)
				says(t, home, movedName, "one\n")
				(<-thaw)()
				time.Sleep(time.Minute)
				says(t, home, movedName, "one\n") // the pass that was left behind still writes there
				close(ends)
				time.Sleep(2 * lookAround)
				says(t, home, movedName, "one\ntwo\n")
				says(t, home, "lost.jsonl", "")
				if got := a.refuge.accountDir("inc-1"); got != home || a.dataDirTrouble() != "" {
					t.Errorf("the account is in %s, and people are told %q", got, a.dataDirTrouble())
				}
				writes(t, home, movedName, "three\n")
				inRefuge(t, dir, disks.Healthy) // the next process
				says(t, home, movedName, "one\ntwo\nthree\n")
			})
		})
	}
}

// standstill is a monitor that stands still once, with the machine.
type standstill struct {
	*sickDisk
	begins, ends chan struct{}
}

func (s *standstill) Changed() <-chan struct{} {
	select {
	case s.begins <- struct{}{}:
		<-s.ends
	default:
	}
	return s.sickDisk.Changed()
}

// The machine stands still for half a minute while something is written to data_dir, as in Azure's freeze. No drain is left
// behind for that.
func TestDrainOnAMachineThatStandsStill(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, stub := inRefuge(t, dir, disks.Healthy)
		still := &standstill{stub, make(chan struct{}), make(chan struct{})}
		a.disks.monitor = still
		sum, err := a.refuge.carry(t.Context(), "inc-1", false, func(ctx context.Context, dir string) (manifest.Summary, error) {
			if dir != a.incidents.Dir("inc-1") {
				t.Errorf("another pass has its account in %s", dir)
				return manifest.Summary{}, nil
			}
			go a.disk.Do("what is under way", func() error { <-still.ends; time.Sleep(time.Millisecond); return nil })
			<-still.begins
			time.Sleep(30 * time.Second)
			close(still.ends)
			if time.Sleep(time.Minute); isLeft(ctx) {
				t.Error("it was left behind")
			}
			return manifest.Summary{Moved: inventory.Count{Blocks: 1}}, nil
		})
		if err != nil || sum.Moved.Blocks != 1 || a.refuge.any() {
			t.Errorf("got %+v, %v", sum, err)
		}
	})
}

// An account that a killed process left in the refuge is brought home by the next one.
func TestAccountOfAKilledProcess(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, _ := inRefuge(t, dir, disks.IOHang)
		home := a.incidents.Dir("inc-1")
		writes(t, home, movedName, "one\n")
		_, err := a.refuge.carry(t.Context(), "inc-1", false, func(_ context.Context, dir string) (manifest.Summary, error) {
			writes(t, dir, movedName, "two\n")
			return manifest.Summary{}, nil
		})
		if err != nil {
			t.Error(err)
		}
		says(t, home, movedName, "one\n")
		if a.dataDirTrouble() == "" {
			t.Error("people are not told")
		}
		if err := os.Chmod(a.refuge.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		inRefuge(t, dir, disks.Healthy)
		says(t, home, movedName, "one\n") // any user may have put it there
		if err := os.Chmod(a.refuge.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		inRefuge(t, dir, disks.Healthy)
		says(t, home, movedName, "one\ntwo\n")
	})
}

// A process may be killed, or give up, while it reads the account into a refuge. The next one leaves the account at home as it is.
func TestRefugeThatNoDrainBeganWith(t *testing.T) {
	for name, read := range map[string]string{"before it read any": "", "when it had read a part": "one\n"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a, _ := inRefuge(t, dir, disks.IOHang)
			home := a.incidents.Dir("inc-1")
			writes(t, home, movedName, "one\ntwo\n")
			writes(t, home, "lost.jsonl", "three\n")
			if !a.refuge.ready("inc-1") {
				t.Fatal("there is no refuge")
			}
			if read != "" {
				writes(t, a.refuge.of("inc-1"), movedName, read)
			}
			inRefuge(t, dir, disks.Healthy)
			says(t, home, movedName, "one\ntwo\n")
			says(t, home, "lost.jsonl", "three\n")
		})
	}
}

// A pass that needs the whole account does not go on in the refuge if a part cannot be read.
func TestPassThatNeedsTheWholeAccount(t *testing.T) {
	dir := t.TempDir()
	a, _ := inRefuge(t, dir, disks.IOHang)
	if err := os.MkdirAll(a.incidents.Dir("inc-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(a.incidents.Dir("inc-1"), movedName), 0o600); err != nil { // to open one that nobody writes to hangs
		t.Skipf("no pipe to hang on: %v", err)
	}
	pass := func(context.Context, string) (manifest.Summary, error) {
		return manifest.Summary{Moved: inventory.Count{Blocks: 1}}, nil
	}
	if sum, err := a.refuge.carry(t.Context(), "inc-1", true, pass); !errors.Is(err, errLeft) || sum.Moved.Blocks > 0 {
		t.Errorf("got %+v, %v", sum, err)
	}
	if sum, err := a.refuge.carry(t.Context(), "inc-1", false, pass); err != nil || sum.Moved.Blocks != 1 {
		t.Errorf("one that needs nothing of it: got %+v, %v", sum, err)
	}
}

// A pass that was left behind may write to the account until it has ended, so no other pass begins there.
func TestPassWaitsForOneThatWasLeftBehind(t *testing.T) {
	a, _ := inRefuge(t, t.TempDir(), disks.Healthy)
	defer a.aside.Wait() // what asks whether the disk hangs writes to it
	pass := func(context.Context, string) (manifest.Summary, error) { return manifest.Summary{}, nil }
	ended := make(chan struct{})
	a.refuge.leave(ended)
	if _, err := a.refuge.carry(t.Context(), "inc-1", true, pass); !errors.Is(err, errLeft) || !a.refuge.waits() {
		t.Errorf("got %v", err)
	}
	close(ended)
	if _, err := a.refuge.carry(t.Context(), "inc-1", true, pass); err != nil || a.refuge.waits() {
		t.Errorf("once it has ended: got %v", err)
	}
}

// The part of an account that could not be read is joined again when the other part comes home, even if the process was
// killed meanwhile.
func TestAccountThatCouldNotBeReadIsKept(t *testing.T) {
	dir := t.TempDir()
	line := func(id string) string {
		return `{"id":"cache/-/` + id + `","bytes":10,"outcome":"moved","peer":"b","version":"@1"}` + "\n"
	}
	a, _ := inRefuge(t, dir, disks.IOHang)
	home := a.incidents.Dir("inc-1")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(home, movedName), 0o600); err != nil { // to open one that nobody writes to hangs
		t.Skipf("no pipe to hang on: %v", err)
	}
	_, err := a.refuge.carry(t.Context(), "inc-1", false, func(_ context.Context, dir string) (manifest.Summary, error) {
		writes(t, dir, movedName, line("two"))
		return manifest.Summary{}, nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(home, movedName)); err != nil {
		t.Fatal(err)
	}
	writes(t, home, movedName, line("one"))
	inRefuge(t, dir, disks.Healthy)
	says(t, home, movedName, line("one")+line("two"))
}

// Without a refuge a drain waits for the disk. If it ended instead, it would be over, with blocks that it names neither as
// moved nor as lost.
func TestDrainWithoutARefuge(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, _ := inRefuge(t, dir, disks.IOHang)
		a.refuge.dir = ""
		sum, err := a.refuge.carry(t.Context(), "inc-1", false, func(ctx context.Context, dir string) (manifest.Summary, error) {
			if time.Sleep(time.Minute); ctx.Err() != nil || dir != a.incidents.Dir("inc-1") {
				t.Errorf("it is in %s, and ended: %v", dir, ctx.Err())
			}
			return manifest.Summary{Moved: inventory.Count{Blocks: 1}}, nil
		})
		if err != nil || sum.Moved.Blocks != 1 {
			t.Errorf("got %+v, %v", sum, err)
		}
	})
}

// A drain does not wait while an account is brought home to a disk that hangs again, whichever of the two began first.
func TestDrainTakesItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefuge("/run/lifeboat/agent.sock")
		yields, stop := context.WithCancel(t.Context())
		if !r.begin(stop) {
			t.Fatal("nobody has the turn, and it is not to be had")
		}
		go func() { <-yields.Done(); <-r.turn }()
		done := r.take()
		if r.begin(stop) {
			t.Error("an account is brought home while a drain runs")
		}
		done()
		if r.wait++; r.begin(stop) {
			t.Error("an account is brought home before a drain that waits")
		}
		if r.dir != "/run/lifeboat/agent.refuge" {
			t.Errorf("it is %s", r.dir)
		}
	})
}

// A directory of another user in the refuge's place is left alone.
func TestRefugeThatIsNotItsOwn(t *testing.T) {
	dir := t.TempDir()
	a, _ := inRefuge(t, dir, disks.Healthy)
	theirs := filepath.Join(dir, "theirs")
	writes(t, filepath.Join(theirs, "inc-1"), "file", "data")
	if err := os.Symlink(theirs, a.refuge.dir); err != nil {
		t.Fatal(err)
	}
	if a.refuge.ready("inc-1") {
		t.Error("it is used")
	}
	says(t, filepath.Join(theirs, "inc-1"), "file", "data")
}
