package preemption

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/systemd"
)

const (
	// loginEvery is how often a silent logind is asked whether it is still there, and how long the pauses between two
	// tries get when it is not.
	loginEvery = 10 * time.Second
	// loginLimit bounds one question to logind. The first one may have to start it.
	loginLimit = 5 * time.Second
	// managerLimit bounds what is asked of the service manager. One that stops everything at once answers late: 0.24 s was
	// measured in a small container (systemd 257), and not to know is to stay.
	managerLimit = time.Second

	// longestStop is when systemd takes a host down that hangs while it stops: JobTimeoutSec of poweroff.target and
	// reboot.target. A unit without a limit of its own has no more.
	longestStop = 30 * time.Minute

	shutdownID   = "shutdown"
	plannedID    = "planned-shutdown"
	shutdownPath = "PrepareForShutdown"
)

// Login is a connection to logind, as systemd.OpenLogin gives it.
type Login interface {
	// Next blocks until logind says that the host goes down, or that it does not after all.
	Next(ctx context.Context) (systemd.Shutdown, error)
	// Preparing tells whether the host is going down.
	Preparing(ctx context.Context) (systemd.Shutdown, error)
	// Planned tells for when a shutdown is set that has not begun.
	Planned(ctx context.Context) (systemd.Plan, error)
	// MaxDelay is for how long logind lets a lock hold a shutdown back.
	MaxDelay(ctx context.Context) (time.Duration, error)
	// Inhibit takes a lock that does so until it is closed.
	Inhibit(ctx context.Context, why string) (io.Closer, error)
	Close() error
}

// LogindConfig says how the operating system is asked. What is nil asks the real one.
type LogindConfig struct {
	Log *slog.Logger

	// Login connects to logind.
	Login func(ctx context.Context) (Login, error)
	// GoingDown asks the service manager whether the host goes down now. Its word counts where logind does not know: after
	// a restart, and of a shutdown that went past it.
	GoingDown func(ctx context.Context) (systemd.Shutdown, error)
	// StopTimeout is how long this process may stay after it is told to stop. An error is none at all.
	StopTimeout func(ctx context.Context) (time.Duration, error)
}

// Logind is the source for the end of the operating system. It holds a delay inhibitor from the start, so that a shutdown
// waits until the node is empty or logind's patience ends, and takes it again after a shutdown that was called off and
// after logind or the bus restarted. Where there is no logind it says so once and keeps looking.
//
// When the context of Next ends the lock is let go, and a shutdown no longer waits.
type Logind struct {
	cfg LogindConfig

	// What only Next uses.
	login   Login         // nil: not connected
	locked  bool          // this connection gave us the lock
	settled bool          // nothing has happened since the lock was last seen to
	due     time.Time     // of the next question, or of the next try to connect
	pause   time.Duration // before the try after that
	trouble streak
	plans   bool         // logind has said what is planned
	plan    systemd.Plan // as it was heard last
	planned Notice       // of it, in force; Source is empty: none is

	mu       sync.Mutex // guards what follows
	lock     io.Closer  // nil: not held
	notice   Notice     // in force; Source is empty: none is
	maxDelay time.Duration
	stop     time.Duration // 0: nobody stops this process before the host is gone, as far as is known
	lastGood time.Time
	lastErr  string
}

// NewLogind returns the source. It connects when it is asked for its first notice.
func NewLogind(cfg LogindConfig) *Logind {
	if cfg.Login == nil {
		cfg.Login = func(ctx context.Context) (Login, error) {
			l, err := systemd.OpenLogin(ctx)
			if err != nil {
				return nil, err // and no *systemd.Login that is nil
			}
			return l, nil
		}
	}
	if cfg.GoingDown == nil {
		cfg.GoingDown = systemd.GoingDown
	}
	if cfg.StopTimeout == nil {
		cfg.StopTimeout = systemd.StopTimeout
	}
	return &Logind{cfg: cfg, trouble: streak{log: cfg.Log.With("source", SourceLogind), what: "logind"}}
}

// Believe tells what was known before a restart. It is called before the first Next.
func (l *Logind) Believe(notices ...Notice) {
	for _, n := range notices {
		if n.Source != SourceLogind || n.Withdrawn {
			continue
		}
		n.Stance = "" // not ours to say
		switch n.ID {
		case shutdownID:
			l.stand(n)
		case plannedID:
			l.planned = n
		}
	}
}

// Next blocks until the host goes down or no longer does, or is to at some time, or ctx ends; it returns no other error.
func (l *Logind) Next(ctx context.Context) (Notice, error) {
	for ctx.Err() == nil {
		if n, news := l.appoint(); news {
			return n, nil
		}
		said, certain, err := l.listen(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			l.lose(err)
			continue
		}
		l.settled = false // which comes after the news, however short the way is
		if n, news := l.weigh(ctx, said, certain); news {
			return n, nil
		}
	}
	l.leave()
	return Notice{}, ctx.Err()
}

// listen returns logind's next word, or what it answers when it is newly found or has been silent. certain tells whether
// a "no" counts: a logind that has restarted has forgotten what it had begun.
func (l *Logind) listen(ctx context.Context) (said systemd.Shutdown, certain bool, err error) {
	if l.login == nil {
		if err := sleepUntil(ctx, l.due); err != nil {
			return said, false, err
		}
		if err := l.connect(ctx); err != nil {
			return said, false, err
		}
		said, err = l.ask(ctx)
		return said, false, err
	}
	if !l.settled {
		l.settle(ctx)
	}
	quiet, cancel := context.WithDeadline(ctx, l.due)
	defer cancel()
	said, err = l.login.Next(quiet)
	if errors.Is(err, context.DeadlineExceeded) {
		said, err = l.ask(ctx)
		return said, false, err
	}
	return said, true, err
}

func (l *Logind) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loginLimit)
	defer cancel()
	login, err := l.cfg.Login(ctx)
	if err != nil {
		return err
	}
	l.login, l.locked = login, false
	return nil
}

// ask puts all questions to logind, and to the manager how long it would wait for us. The next time is loginEvery later.
func (l *Logind) ask(ctx context.Context) (systemd.Shutdown, error) {
	l.due = time.Now().Add(loginEvery)
	limited, cancel := context.WithTimeout(ctx, loginLimit)
	defer cancel()
	maxDelay, err := l.login.MaxDelay(limited)
	if err != nil {
		return systemd.Shutdown{}, err
	}
	stop := l.stopTimeout(ctx)
	l.mu.Lock()
	l.maxDelay, l.stop = maxDelay, stop
	l.mu.Unlock()
	if plan, err := l.login.Planned(limited); err == nil { // one that does not say has said nothing else
		l.plans, l.plan = true, plan
	}
	return l.login.Preparing(limited)
}

// weigh makes a notice of what logind said, if it is news.
func (l *Logind) weigh(ctx context.Context, said systemd.Shutdown, certain bool) (n Notice, news bool) {
	known, standing := l.standing()
	if standing && !said.Down && !certain {
		asked, err := l.goingDown(ctx)
		switch {
		case err == nil:
			said = asked
		case !errors.Is(err, systemd.ErrNotBooted): // where there is no manager, logind's word is all there is
			return Notice{}, false // not known: what stands stands, and is asked for again
		}
	}
	if said.Down && said.How == "" {
		said.How = l.asPlanned(time.Now())
	}
	switch {
	case !said.Down && !standing:
		return Notice{}, false
	case !said.Down:
		known.Withdrawn, known.Reason = true, "the shutdown was called off"
		l.stand(Notice{})
		return known, true
	case standing:
		kind := kindOf(said.How, known.Kind)
		if kind == known.Kind {
			return Notice{}, false
		}
		known.Kind, known.Reason = kind, reasonOf(said.How)
		l.stand(known)
		return known, true
	}
	now := time.Now()
	n = Notice{
		Source: SourceLogind, ID: shutdownID, Kind: kindOf(said.How, KindShutdown), SeenAt: now,
		Deadline: now.Add(l.granted()), Reason: reasonOf(said.How),
	}
	l.stand(n)
	return n, true
}

// settle sees to it that the lock is held, except while the host goes down: then logind gives none, and one that was let
// go stays so. A lock from before logind restarted is let go only when there is a new one: logind keeps them on disk.
func (l *Logind) settle(ctx context.Context) {
	l.settled = true
	l.mu.Lock()
	wanted := l.notice.Source == "" && (l.lock == nil || !l.locked)
	l.mu.Unlock()
	if wanted {
		limited, cancel := context.WithTimeout(ctx, loginLimit)
		defer cancel()
		lock, err := l.login.Inhibit(limited, "blocks are carried to other nodes")
		if err != nil {
			if ctx.Err() == nil {
				l.ail(err)
			}
			return
		}
		l.letGo(lock)
		l.locked = true
	}
	l.pause = 0
	l.trouble.worked()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastGood, l.lastErr = time.Now(), ""
}

// lose gives a connection up that is of no more use. The first try for another comes at once, further ones less and less
// often.
func (l *Logind) lose(err error) {
	l.hangUp()
	l.due = time.Now().Add(l.pause)
	l.pause = min(max(time.Second, 2*l.pause), loginEvery)
	l.ail(err)
}

// leave ends all that Next has begun.
func (l *Logind) leave() {
	l.letGo(nil)
	l.hangUp()
	l.due, l.pause = time.Time{}, 0
}

func (l *Logind) hangUp() {
	if l.login != nil {
		_ = l.login.Close() // it is of no more use either way
		l.login = nil
	}
}

// letGo lets the lock go that is held, for another or for none.
func (l *Logind) letGo(next io.Closer) {
	l.mu.Lock()
	lock := l.lock
	l.lock = next
	l.mu.Unlock()
	if lock != nil {
		_ = lock.Close() // the descriptor is gone whatever close(2) returns, and that is all that counts
	}
}

func (l *Logind) ail(err error) {
	l.trouble.failed(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastErr = err.Error()
}

// Release lets a shutdown go on at once. It is called beside Next.
func (l *Logind) Release(_ context.Context, n Notice) error {
	if _, standing := l.standing(); standing && n.Source == SourceLogind {
		l.letGo(nil)
	}
	return nil
}

// Health tells when the lock was last known to hold (or the host to go down), and why it may not since.
func (l *Logind) Health() []Health {
	l.mu.Lock()
	defer l.mu.Unlock()
	return []Health{{Source: SourceLogind, Path: shutdownPath, LastGood: l.lastGood, Trouble: l.lastErr}}
}

// Terminating tells whether the host goes down, when this process is told to stop. An upgrade or an operator who restarts
// it is no notice. What remains until the deadline is what the manager leaves a unit that it stops. It takes managerLimit
// at most and may be called beside Next, or after it.
func (l *Logind) Terminating(ctx context.Context) (Notice, bool) {
	ctx, cancel := context.WithTimeout(ctx, managerLimit)
	defer cancel()
	asked, err := l.goingDown(ctx)
	if err != nil && !errors.Is(err, systemd.ErrNotBooted) {
		l.cfg.Log.Warn("told to stop, and nobody says whether the host goes down", "err", err)
	}
	n, standing := l.standing()
	if !asked.Down && !standing {
		return Notice{}, false
	}
	now := time.Now()
	if !standing {
		n = Notice{Source: SourceLogind, ID: shutdownID, Kind: KindShutdown, SeenAt: now, Reason: reasonOf(asked.How)}
	}
	if asked.How != "" {
		n.Kind, n.Reason = kindOf(asked.How, n.Kind), reasonOf(asked.How)
	}
	if stop := l.stopTimeout(ctx); stop > 0 {
		n.Deadline = now.Add(min(stop, longestStop))
	}
	l.stand(n)
	return n, true
}

// goingDown asks the manager, in a moment.
func (l *Logind) goingDown(ctx context.Context) (systemd.Shutdown, error) {
	ctx, cancel := context.WithTimeout(ctx, managerLimit)
	defer cancel()
	return l.cfg.GoingDown(ctx)
}

// stopTimeout asks the manager, in a moment, and otherwise returns what it last said.
func (l *Logind) stopTimeout(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, managerLimit)
	defer cancel()
	stop, err := l.cfg.StopTimeout(ctx)
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.stop
	}
	return stop
}

// granted is how long the node has once logind has begun: the lock holds it that long, and then the manager waits for
// the unit to stop.
func (l *Logind) granted() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(l.maxDelay, longestStop) + min(l.stop, longestStop)
}

// standing returns the notice in force.
func (l *Logind) standing() (n Notice, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.notice, l.notice.Source != ""
}

func (l *Logind) stand(n Notice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notice = n
}

// kindOf is the kind of a shutdown; where it is not known how the host goes down, it is otherwise.
func kindOf(how systemd.How, otherwise Kind) Kind {
	switch {
	case how == "":
		return otherwise
	case how.ComesBack():
		return KindReboot
	default:
		return KindShutdown
	}
}

func reasonOf(how systemd.How) string {
	return "the operating system goes down: " + cmp.Or(string(how), "nobody says how")
}
