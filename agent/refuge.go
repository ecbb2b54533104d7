package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// A drain keeps its plan and its account in data_dir. While the disk of that hangs they lie in a refuge: a directory beside the socket, which
// is memory where the system has such a place (/run), so that what lies in the stores leaves all the same. A drain that the disk hangs
// under is left behind, for nothing ends it, and another goes on with what can be read of its account: what peers took and it says nothing
// of they know by its sum when it comes again. Once the disk answers the account is brought home.
//
// A process that is killed meanwhile leaves a refuge behind, which the next one brings home.

// refuge is where such accounts are.
type refuge struct {
	dir  string        // "": there is none
	turn chan struct{} // has one while a drain runs, or an account is brought home
	used chan struct{} // has one when there is an account

	mu    sync.Mutex
	here  map[string]bool   // the incidents whose accounts are there
	left  []<-chan struct{} // each closed once what was left behind with the disk has ended
	yield func()            // has whoever brings an account home leave the turn to a drain; nil: nobody does
	wait  int               // drains that wait for their turn: nobody brings an account home before them
}

const (
	// mostRefuge bounds a plan and an account that lie in memory: some 700,000 blocks. Of more the plan waits in the drain's own memory
	// until those before have left, and the account has but their number.
	mostRefuge = 256 << 20
	// drainPatience is how long the disk may take over a small file before a drain is left behind. Another one has to look through the
	// stores again.
	drainPatience = 5 * time.Second
	// copyPatience is for reading what there is of an account from a disk that hangs: memory has most of it.
	copyPatience = 2 * time.Second
	homePatience = time.Minute
	// leavePatience is for a drain that is left behind and does not hang, whatever was said of the disk.
	leavePatience = time.Second
	// homeFor is how long a refuge stays once its account is home: somebody may be reading it to the coordinator.
	homeFor = goodbyeTimeout
)

const (
	// atHome is the name of a file that says so.
	atHome = "home"
	// inPart is the name of one that says that the account was begun without all of what is at home.
	inPart = "part"
)

// newRefuge is beside a socket, which is the agent's own.
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

// incidents are those whose accounts are there, unless something that was left behind has not ended: it may write where they belong.
func (r *refuge) incidents() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.left) > 0 {
		select {
		case <-r.left[0]:
			r.left = r.left[1:]
		default:
			return nil
		}
	}
	for incident := range r.here {
		all = append(all, incident)
	}
	return all
}

func (r *refuge) leave(ended <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = append(r.left, ended)
}

func (r *refuge) add(incident string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.here[incident] = true
	select {
	case r.used <- struct{}{}:
	default:
	}
}

func (r *refuge) drop(incident string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.here, incident)
}

// take waits until it is a drain's turn.
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

// begin has the turn be that of who brings an account home, and yields; false: a drain has it, or waits for it.
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

// safe says whether nobody else can have put something there.
func (r *refuge) safe() bool {
	info, err := os.Lstat(r.dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return false
	}
	is, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(is.Uid) == os.Geteuid()
}

// accountDir is where the account of an incident is.
func (a *Agent) accountDir(incident string) string {
	if a.refuge.has(incident) {
		return a.refuge.of(incident)
	}
	return a.incidents.Dir(incident)
}

// errLeft is why a drain ends that was left behind.
var errLeft = errors.New("the disk of data_dir hangs under it")

func isLeft(ctx context.Context) bool { return context.Cause(ctx) == errLeft }

// carry runs a pass of a drain, which keeps its account in dir. It may be run again, elsewhere, while the one before has not ended: what
// becomes of that is nothing to anybody (errLeft). whole says that it needs all of the account that there is; where that cannot be had, no
// other runs.
func (a *Agent) carry(ctx context.Context, incident string, whole bool, pass func(ctx context.Context, dir string) (manifest.Summary, error)) (sum manifest.Summary, err error) {
	defer a.refuge.take()()
	if a.hangs(durable.Patience) && a.hasRefuge(incident) && !a.takeRefuge(incident, whole) {
		return sum, errLeft
	}
	for {
		working, leave := context.WithCancelCause(ctx)
		var passSum manifest.Summary
		var passErr error
		over := make(chan struct{})
		dir := a.accountDir(incident)
		go func() {
			defer close(over)
			passSum, passErr = pass(working, dir)
		}()
		if a.untilHung(incident, over); !isClosed(over) && !a.hasRefuge(incident) {
			<-over
		}
		if isClosed(over) {
			leave(nil)
			return passSum, passErr
		}
		leave(errLeft)
		select {
		case <-over: // it can write yet, and has
		case <-time.After(leavePatience):
			a.refuge.leave(over)
		}
		if !a.takeRefuge(incident, whole) {
			return sum, errLeft
		}
	}
}

// untilHung waits until something is over that writes to where the account of an incident is, or the disk of that hangs.
func (a *Agent) untilHung(incident string, over <-chan struct{}) {
	if a.refuge.has(incident) {
		<-over
		return
	}
	look := time.NewTicker(lookAround)
	defer look.Stop()
	for {
		changed := a.disks.Changed()
		if a.hangs(drainPatience) {
			return
		}
		if a.disk.Takes() == 0 {
			a.aside.Go(func() { _ = a.disk.Do(alive, func() error { return touch(a.cfg.DataDir) }) }) // how long it takes says whether it hangs, and all else others do
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

// hasRefuge says whether there is one for an account.
func (a *Agent) hasRefuge(incident string) bool {
	if a.refuge.has(incident) {
		return true
	}
	err := errors.New("the agent has no socket")
	if a.refuge.dir != "" {
		err = os.MkdirAll(a.refuge.dir, 0o700)
	}
	if err == nil && !a.refuge.safe() {
		err = fmt.Errorf("%s is open to others", a.refuge.dir)
	}
	if to := a.refuge.of(incident); err == nil {
		err = errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o700))
	}
	if err != nil {
		a.log.Error("the disk of data_dir hangs, and there is no room for the manifest of a drain elsewhere: the drain waits", "incident", incident, "err", err)
	}
	return err == nil
}

// takeRefuge has an account go on there, with what can be read of it; whole: all of it, or not at all.
func (a *Agent) takeRefuge(incident string, whole bool) bool {
	if a.refuge.has(incident) {
		return true
	}
	to := a.refuge.of(incident)
	read, stop := context.WithTimeout(context.Background(), copyPatience)
	defer stop()
	err := manifest.Copy(read, a.incidents.Dir(incident), to, mostRefuge)
	if err != nil && whole {
		return false
	}
	if err != nil {
		err = errors.Join(err, os.WriteFile(filepath.Join(to, inPart), nil, 0o600))
	}
	a.log.Error("the disk of data_dir hangs: the manifest of the drain is kept in memory until it answers", "incident", incident, "dir", to, "err", err)
	a.refuge.add(incident)
	return true
}

// tendRefuge brings accounts home whose disk answers again, until ctx ends.
func (a *Agent) tendRefuge(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-a.refuge.used:
		case <-ctx.Done():
			return nil
		}
		for said := ""; a.refuge.any() && ctx.Err() == nil; {
			select {
			case <-time.After(lookAround):
			case <-ctx.Done():
			}
			err := a.bringHome(ctx)
			if err != nil && err.Error() != said && ctx.Err() == nil && !errors.Is(err, durable.ErrHangs) {
				said = err.Error()
				a.log.Warn("the manifest of a drain stays in memory for now", "err", err)
			}
		}
	}
	return nil
}

// bringHome does that, unless a drain runs: its account goes on where it is.
func (a *Agent) bringHome(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, homePatience)
	defer stop()
	if !a.refuge.begin(stop) {
		return nil
	}
	defer func() { <-a.refuge.turn }()
	for _, incident := range a.refuge.incidents() {
		if a.hangs(durable.Patience) {
			return durable.ErrHangs
		}
		from := a.refuge.of(incident)
		var err error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			err = bringAccount(ctx, from, a.incidents.Dir(incident))
		}()
		select {
		case <-ended:
		case <-ctx.Done():
			a.refuge.leave(ended)
			return ctx.Err()
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(from, atHome), nil, 0o600)
		}
		if err != nil {
			return err
		}
		a.refuge.drop(incident)
		a.log.Info("the manifest of the drain is in data_dir", "incident", incident)
		time.AfterFunc(homeFor, func() {
			if !a.refuge.has(incident) {
				_ = os.RemoveAll(from) // or the next start does
			}
		})
	}
	return nil
}

func bringAccount(ctx context.Context, from, home string) error {
	if _, err := os.Lstat(filepath.Join(from, inPart)); err == nil {
		return manifest.Join(ctx, from, home)
	}
	return manifest.Copy(ctx, from, home, 0)
}

// openRefuge finds what a process left there that was killed.
func (a *Agent) openRefuge(ctx context.Context) {
	a.refuge = newRefuge(a.cfg.Listen.Socket)
	if a.refuge.dir == "" || !a.refuge.safe() { // whoever else may write to where the socket is
		return
	}
	entries, _ := os.ReadDir(a.refuge.dir)
	for _, e := range entries {
		dir := a.refuge.of(e.Name())
		if _, err := os.Lstat(filepath.Join(dir, atHome)); err == nil {
			_ = os.RemoveAll(dir)
		} else {
			a.refuge.add(e.Name())
		}
	}
	if err := a.bringHome(ctx); err != nil {
		a.log.Warn("the manifest of a drain stays in memory for now", "err", err)
	}
}
