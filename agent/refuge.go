package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// A drain keeps its plan and its account in data_dir. While that disk hangs, they lie in a refuge: a directory beside the
// socket, which is memory where the system has such a place (/run). So the blocks in the stores can leave all the same. A
// drain under which the disk hangs is left behind, since nothing can end it, and another drain takes over with what can be
// read of its account. It sends again the blocks that the part it could read does not name; peers that have them recognise
// them by their sums. Once the disk answers, the account is brought home to data_dir.
//
// A process that is killed meanwhile leaves a refuge behind, which the next process brings home.

// refuge is where those accounts are.
type refuge struct {
	log     *slog.Logger
	disk    *dataDisk
	journal *incidents
	aside   *sync.WaitGroup

	dir  string        // "": there is none
	turn chan struct{} // full while a drain runs, or an account is brought home
	used chan struct{} // full when an account was added

	mu    sync.Mutex
	here  map[string]bool   // the incidents whose accounts lie here
	left  []<-chan struct{} // one for each piece of work left behind with the disk, closed when it ends
	yield func()            // ends the last bringing home of an account, so that a drain gets the turn; nil: there was none
	wait  int               // drains that wait for the turn: they come before any bringing home
}

const (
	// mostRefuge bounds a plan and an account in memory: some 700,000 blocks. Beyond that the rest of the plan waits in the
	// drain's own memory until earlier blocks have left, and the account keeps only the number of blocks.
	mostRefuge = 256 << 20
	// drainPatience is how long the disk may take over a small file before a drain is left behind. It is not shorter,
	// because the drain that takes over must look through the stores again.
	drainPatience = 5 * time.Second
	// copyPatience bounds reading an account from a disk that hangs: most of it is in the page cache.
	copyPatience = 2 * time.Second
	homePatience = time.Minute
	// leavePatience is how long a drain that is left behind is waited for: if the disk does not hang after all, it ends by
	// itself.
	leavePatience = time.Second
	// homeFor is how long a refuge stays once its account is home: a goodbye may still be reading it.
	homeFor = goodbyeTimeout
)

const (
	// atHome is a file in a refuge: its account has been brought home.
	atHome = "home"
	// inPart is a file in a refuge: its account began without all of the account at home.
	inPart = "part"
	// filling is a file in a refuge that no drain has begun to use: what is there of the account is no more than a part of a copy.
	filling = "filling"
)

// newRefuge makes a refuge beside the agent's socket.
func newRefuge(socket string) *refuge {
	r := &refuge{turn: make(chan struct{}, 1), used: make(chan struct{}, 1), here: map[string]bool{}}
	if filepath.IsAbs(socket) {
		r.dir = strings.TrimSuffix(socket, ".sock") + ".refuge"
	}
	return r
}

func (r *refuge) of(incident string) string { return filepath.Join(r.dir, incident) }

func (r *refuge) has(incident string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.here[incident]
}

func (r *refuge) any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.here) > 0
}

// incidents lists the incidents whose accounts lie here. It lists none while a drain that was left behind has not ended:
// that may still write to the place the accounts would be brought to.
func (r *refuge) incidents() (all []string) {
	if r.behind() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for incident := range r.here {
		all = append(all, incident)
	}
	return all
}

// behind reports whether work that was left behind has not ended: it may still write to an account in data_dir.
func (r *refuge) behind() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = slices.DeleteFunc(r.left, isClosed)
	return len(r.left) > 0
}

// waits reports whether it is too early to try a pass again that was left behind.
func (r *refuge) waits() bool { return r.disk.hangs(durable.Patience) || r.behind() }

func (r *refuge) leave(ended <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = append(r.left, ended)
}

func (r *refuge) add(incident string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.here[incident] = true
	await.Mark(r.used)
}

func (r *refuge) drop(incident string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.here, incident)
}

// take waits for a drain's turn.
func (r *refuge) take() (done func()) {
	r.mu.Lock()
	if r.wait++; r.yield != nil {
		r.yield()
	}
	r.mu.Unlock()
	r.turn <- struct{}{}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wait--
	return func() { <-r.turn }
}

// begin takes the turn for bringing an account home; yield ends that when a drain asks for the turn. False: a drain has the
// turn, or waits for it.
func (r *refuge) begin(yield func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wait > 0 {
		return false
	}
	select {
	case r.turn <- struct{}{}:
		r.yield = yield
		return true
	default:
		return false
	}
}

// safe reports whether the directory is this user's alone, so that nobody else can have put files there.
func (r *refuge) safe() bool {
	info, err := os.Lstat(r.dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return false
	}
	is, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(is.Uid) == os.Geteuid()
}

// accountDir is where the account of an incident is.
func (r *refuge) accountDir(incident string) string {
	if r.has(incident) {
		return r.of(incident)
	}
	return r.journal.Dir(incident)
}

// errLeft says that a drain was left behind.
var errLeft = errors.New("the disk of data_dir hangs under it")

func isLeft(ctx context.Context) bool { return context.Cause(ctx) == errLeft }

// carry runs a pass of a drain, which keeps its account in dir. If the disk of dir hangs, carry leaves the pass behind (its
// context ends with errLeft, and its result counts for nothing) and runs it again in the refuge, beside the old one. whole
// says that the pass needs the complete account; if that cannot be read, or an earlier pass may still write to it, the pass is not run.
func (r *refuge) carry(ctx context.Context, incident string, whole bool, pass func(ctx context.Context, dir string) (manifest.Summary, error)) (sum manifest.Summary, err error) {
	defer r.take()()
	if whole && !r.has(incident) && r.behind() {
		return sum, errLeft
	}
	if r.disk.hangs(durable.Patience) && r.ready(incident) && !r.moveIn(incident, whole) {
		return sum, errLeft
	}
	for {
		working, leave := context.WithCancelCause(ctx)
		var passSum manifest.Summary
		var passErr error
		dir := r.accountDir(incident)
		over := await.Beside(func() { passSum, passErr = pass(working, dir) })
		if r.untilHung(incident, over); !isClosed(over) && !r.ready(incident) {
			<-over
		}
		if isClosed(over) {
			leave(nil)
			return passSum, passErr
		}
		leave(errLeft)
		select {
		case <-over: // the disk did answer, and the pass has ended
		case <-time.After(leavePatience):
			r.leave(over)
		}
		if !r.moveIn(incident, whole) {
			return sum, errLeft
		}
	}
}

// untilHung waits until the work that closes over has ended, or the disk that it keeps its account on hangs. When a look comes
// late, the machine stood still, and its disk with it: the disk gets a moment to go on.
func (r *refuge) untilHung(incident string, over <-chan struct{}) {
	if r.has(incident) {
		<-over
		return
	}
	look := time.NewTicker(lookAround)
	defer look.Stop()
	var awake time.Time // since when the machine has gone on
	for last := time.Now(); ; {
		changed, now := r.disk.disks.Changed(), time.Now()
		if now.Sub(last) > 2*lookAround {
			awake = now
		}
		if last = now; now.Sub(awake) >= lookAround && r.disk.hangs(drainPatience) {
			return
		}
		if r.disk.Takes() == 0 {
			r.aside.Go(func() { _ = r.disk.Do(alive, func() error { return touch(r.disk.dir) }) }) // how long this takes shows whether the disk hangs
		}
		select {
		case <-look.C:
		case <-changed:
		case <-over:
			return
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// ready reports whether the account of an incident has a refuge, and makes one if needed.
func (r *refuge) ready(incident string) bool {
	if r.has(incident) {
		return true
	}
	err := errors.New("the agent has no socket")
	if r.dir != "" {
		err = os.MkdirAll(r.dir, 0o700)
	}
	if err == nil && !r.safe() {
		err = fmt.Errorf("%s is open to others", r.dir)
	}
	if to := r.of(incident); err == nil {
		err = errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o700), mark(to, filling))
	}
	if err != nil {
		r.log.Error("the disk of data_dir hangs, and there is no room for the manifest of a drain elsewhere: the drain waits", "incident", incident, "err", err)
	}
	return err == nil
}

// moveIn moves an account to its refuge, with as much as can be read of it. With whole it needs all of it, or returns false.
func (r *refuge) moveIn(incident string, whole bool) bool {
	if r.has(incident) {
		return true
	}
	to := r.of(incident)
	read, stop := context.WithTimeout(context.Background(), copyPatience)
	defer stop()
	err := manifest.Copy(read, r.journal.Dir(incident), to, mostRefuge)
	if err != nil && whole {
		return false
	}
	if err != nil {
		err = errors.Join(err, mark(to, inPart))
	}
	err = errors.Join(err, os.Remove(filepath.Join(to, filling)))
	r.log.Error("the disk of data_dir hangs: the manifest of the drain is kept in memory until it answers", "incident", incident, "dir", to, "err", err)
	r.add(incident)
	return true
}

// Run brings accounts home whose disk answers again, until ctx ends.
func (r *refuge) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-r.used:
		case <-ctx.Done():
			return nil
		}
		for said := ""; r.any() && ctx.Err() == nil; {
			await.Sleep(ctx, lookAround)
			err := r.bringHome(ctx)
			if err != nil && err.Error() != said && ctx.Err() == nil && !errors.Is(err, durable.ErrHangs) {
				said = err.Error()
				r.log.Warn("the manifest of a drain stays in memory for now", "err", err)
			}
		}
	}
	return nil
}

// bringHome brings accounts home, unless a drain runs: its account stays where it is.
func (r *refuge) bringHome(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, homePatience)
	defer stop()
	if !r.begin(stop) {
		return nil
	}
	defer func() { <-r.turn }()
	for _, incident := range r.incidents() {
		if r.disk.hangs(durable.Patience) {
			return durable.ErrHangs
		}
		from := r.of(incident)
		var err error
		ended := await.Beside(func() { err = bringAccount(ctx, from, r.journal.Dir(incident)) })
		select {
		case <-ended:
		case <-ctx.Done():
			r.leave(ended)
			return ctx.Err()
		}
		if err == nil {
			err = mark(from, atHome)
		}
		if err != nil {
			return err
		}
		r.drop(incident)
		r.log.Info("the manifest of the drain is in data_dir", "incident", incident)
		time.AfterFunc(homeFor, func() {
			if !r.has(incident) && marked(from, atHome) { // else the disk hangs again, and a drain is about to begin there (ready)
				_ = os.RemoveAll(from) // if this fails, the next start does it
			}
		})
	}
	return nil
}

func bringAccount(ctx context.Context, from, home string) error {
	if marked(from, inPart) {
		return manifest.Join(ctx, from, home)
	}
	return manifest.Copy(ctx, from, home, 0)
}

func mark(refuge, as string) error { return os.WriteFile(filepath.Join(refuge, as), nil, 0o600) }

func marked(refuge, as string) bool {
	_, err := os.Lstat(filepath.Join(refuge, as))
	return err == nil
}

// openRefuge finds the refuge of a process that was killed, and tries to bring its accounts home.
func (a *Agent) openRefuge(ctx context.Context) {
	a.refuge = newRefuge(a.cfg.Listen.Socket)
	a.refuge.log, a.refuge.disk, a.refuge.journal, a.refuge.aside = a.log, a.disk, &a.incidents, &a.aside
	if a.refuge.dir == "" || !a.refuge.safe() { // others may be able to write beside the socket
		return
	}
	entries, _ := os.ReadDir(a.refuge.dir)
	for _, e := range entries {
		dir := a.refuge.of(e.Name())
		if marked(dir, atHome) || marked(dir, filling) || manifest.Bytes(dir) == 0 { // nothing there that is not at home
			_ = os.RemoveAll(dir)
		} else {
			a.refuge.add(e.Name())
		}
	}
	if err := a.refuge.bringHome(ctx); err != nil {
		a.log.Warn("the manifest of a drain stays in memory for now", "err", err)
	}
}
