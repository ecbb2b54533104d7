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
	// loginEvery is how often a silent logind is asked whether it is still there, and the longest pause between two tries to
	// connect.
	loginEvery = 10 * time.Second
	// loginLimit bounds one question to logind. The first one may have to start it.
	loginLimit = 5 * time.Second
	// managerLimit bounds a question to the service manager. A manager that stops all units at once answers late: 0.24 s was
	// measured in a small container (systemd 257). Without an answer the node stays.
	managerLimit = time.Second

	// longestStop is when systemd forces down a host that hangs while it stops: JobTimeoutSec of poweroff.target and
	// reboot.target. A unit without a limit of its own has no more time than that.
	longestStop = 30 * time.Minute

	shutdownID   = "shutdown"
	plannedID    = "planned-shutdown"
	shutdownPath = "PrepareForShutdown"
)

// Login is a connection to logind, as systemd.OpenLogin gives it.
type Login interface {
	// Next blocks until logind says that the host goes down, or that it stays after all.
	Next(ctx context.Context) (systemd.Shutdown, error)
	// Preparing tells whether the host is going down.
	Preparing(ctx context.Context) (systemd.Shutdown, error)
	// Planned returns the shutdown that is set for a later time, if one is.
	Planned(ctx context.Context) (systemd.Plan, error)
	// MaxDelay is how long a lock may hold a shutdown back.
	MaxDelay(ctx context.Context) (time.Duration, error)
	// Inhibit takes a lock that holds a shutdown back until it is closed.
	Inhibit(ctx context.Context, why string) (io.Closer, error)
	Close() error
}

// LogindConfig says how to ask the operating system. Nil fields ask the real one.
type LogindConfig struct {
	Log *slog.Logger

	// Login connects to logind.
	Login func(ctx context.Context) (Login, error)
	// GoingDown asks the service manager whether the host goes down now. Its answer counts where logind does not know: after
	// logind restarted, and about a shutdown that did not go through logind.
	GoingDown func(ctx context.Context) (systemd.Shutdown, error)
	// StopTimeout is how long this process may stay after it is told to stop. After an error that is not known.
	StopTimeout func(ctx context.Context) (time.Duration, error)
}

// Logind is the source for the end of the operating system. It holds a delay inhibitor from the start, so that a shutdown
// waits until the node is empty or logind's patience ends. It takes the inhibitor again after a shutdown was called off, and
// after logind or the bus restarted. Where there is no logind it logs that once and keeps looking.
//
// When the context of Next ends the lock is released, and a shutdown no longer waits.
type Logind struct {
	cfg LogindConfig

	// Only Next uses these.
	login   Login         // nil: not connected
	locked  bool          // this connection gave us the lock
	settled bool          // nothing has happened since settle last ran
	due     time.Time     // of the next question, or of the next try to connect
	pause   time.Duration // before the try after that
	trouble streak
	plans   bool         // logind has said what is planned
	plan    systemd.Plan // as it was heard last
	planned Notice       // the notice in force of that plan; Source is empty: none is

	mu       sync.Mutex // guards what follows
	lock     io.Closer  // nil: not held
	notice   Notice     // in force; Source is empty: none is
	maxDelay time.Duration
	stop     time.Duration // 0: as far as is known, this process is not stopped before the host is gone
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

// Believe takes the notices that were known before a restart. Call it before the first Next.
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
		l.settled = false // after the news: taking the lock must not hold it up
		if n, news := l.weigh(ctx, said, certain); news {
			return n, nil
		}
	}
	l.leave()
	return Notice{}, ctx.Err()
}

// listen returns logind's next signal, or its answer to a question when logind was just found or has been silent. certain
// says that a "no" counts: in an answer it may come from a logind that has restarted and has forgotten the shutdown that it
// had begun.
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

// ask asks logind everything, and the manager how long it would wait for this process to stop. The next time is loginEvery
// later.
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
	if plan, err := l.login.Planned(limited); err == nil { // an error leaves the last plan in force
		l.plans, l.plan = true, plan
	}
	return l.login.Preparing(limited)
}

// weigh turns logind's word into a notice, if it is news.
func (l *Logind) weigh(ctx context.Context, said systemd.Shutdown, certain bool) (n Notice, news bool) {
	known, standing := l.standing()
	if standing && !said.Down && !certain {
		asked, err := l.goingDown(ctx)
		switch {
		case err == nil:
			said = asked
		case !errors.Is(err, systemd.ErrNotBooted): // without a manager there is only logind's word
			return Notice{}, false // not known: the notice stands, and the question comes again
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

// settle takes the lock if it is not held, except while the host goes down: then logind gives none, and a lock that was
// released stays so. A lock from before a restart of logind is released only when there is a new one, because logind keeps
// locks on disk.
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

// lose gives up a connection that failed. The first try for another comes at once, further ones less and less often.
func (l *Logind) lose(err error) {
	l.hangUp()
	l.due = time.Now().Add(l.pause)
	l.pause = min(max(time.Second, 2*l.pause), loginEvery)
	l.ail(err)
}

// leave ends everything that Next has begun.
func (l *Logind) leave() {
	l.letGo(nil)
	l.hangUp()
	l.due, l.pause = time.Time{}, 0
}

func (l *Logind) hangUp() {
	if l.login != nil {
		_ = l.login.Close() // the connection is given up either way
		l.login = nil
	}
}

// letGo replaces the lock that is held by another, or by none, and closes it.
func (l *Logind) letGo(next io.Closer) {
	l.mu.Lock()
	lock := l.lock
	l.lock = next
	l.mu.Unlock()
	if lock != nil {
		_ = lock.Close() // whatever close(2) returns, the descriptor is gone, and with it the lock
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

// Health tells when the lock was last known to be held (or the host to go down), and what has been wrong since.
func (l *Logind) Health() []Health {
	l.mu.Lock()
	defer l.mu.Unlock()
	return []Health{{Source: SourceLogind, Path: shutdownPath, LastGood: l.lastGood, Trouble: l.lastErr}}
}

// Terminating reports whether the host goes down, when this process is told to stop. An upgrade, or an operator who restarts
// it, is no notice. The deadline is what the manager leaves a unit that it stops. It takes managerLimit at most, and may be
// called beside Next or after it.
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

// goingDown asks the manager, for managerLimit at most.
func (l *Logind) goingDown(ctx context.Context) (systemd.Shutdown, error) {
	ctx, cancel := context.WithTimeout(ctx, managerLimit)
	defer cancel()
	return l.cfg.GoingDown(ctx)
}

// stopTimeout asks the manager, for managerLimit at most, and after an error returns what it last said.
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

// granted is how long the node has once a shutdown has begun: the lock holds it back for so long, and then the manager waits
// for the unit to stop.
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

// kindOf is the kind of a shutdown; otherwise, if it is not known how the host goes down.
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
