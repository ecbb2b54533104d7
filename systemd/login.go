package systemd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

// The names of logind on the bus: org.freedesktop.login1(5).
const (
	loginName      = "org.freedesktop.login1"
	loginPath      = dbus.ObjectPath("/org/freedesktop/login1")
	loginInterface = "org.freedesktop.login1.Manager"

	signalPrepare         = "PrepareForShutdown"
	signalPrepareMetadata = "PrepareForShutdownWithMetadata" // since systemd 255
)

// who is the name under which the inhibitor is taken: systemd-inhibit --list shows it.
const who = "lifeboat"

// ErrLost says that a connection to logind cannot be used any more: the bus or logind is gone or has restarted.
var ErrLost = errors.New("the connection to logind is lost")

// Login is a connection to logind. It lasts until Close, or until the bus or logind restarts.
type Login struct {
	conn    *dbus.Conn
	object  dbus.BusObject
	signals chan *dbus.Signal
	owner   string // logind's own address on the bus: only signals from it count

	metadata bool // logind says how the host goes down; only Next uses this
}

// OpenLogin connects to logind and begins to listen to it. ctx bounds the connecting, not the connection.
func OpenLogin(ctx context.Context) (*Login, error) {
	conn, err := openBus(ctx)
	if err != nil {
		return nil, err
	}
	l := &Login{conn: conn, object: conn.Object(loginName, loginPath), signals: make(chan *dbus.Signal, 16)}
	if err := l.listen(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return l, nil
}

func (l *Login) listen(ctx context.Context) error {
	l.conn.Signal(l.signals)
	for _, match := range [][]dbus.MatchOption{
		{dbus.WithMatchSender(loginName), dbus.WithMatchInterface(loginInterface), dbus.WithMatchMember(signalPrepare)},
		{dbus.WithMatchSender(loginName), dbus.WithMatchInterface(loginInterface), dbus.WithMatchMember(signalPrepareMetadata)},
		{dbus.WithMatchSender("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, loginName)},
	} {
		if err := l.conn.AddMatchSignalContext(ctx, match...); err != nil {
			return fmt.Errorf("listen to logind: %w", err)
		}
	}
	// The first question starts a logind that is not running. Only then has its name an owner.
	if _, err := l.MaxDelay(ctx); err != nil {
		return err
	}
	err := l.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetNameOwner", 0, loginName).Store(&l.owner)
	if err != nil {
		return fmt.Errorf("ask the bus who logind is: %w", err)
	}
	return nil
}

// Close ends the connection. Locks that were taken through it stay until they are closed themselves.
func (l *Login) Close() error { return l.conn.Close() }

// Inhibit takes a lock that holds a shutdown back until it is closed, for MaxDelay at most. The lock's mode is "delay",
// which logind can overrule when that time is over (systemd.io/INHIBITOR_LOCKS). If the time of ctx runs out the connection
// is closed, because a late answer would be a lock that nobody can release.
func (l *Login) Inhibit(ctx context.Context, why string) (io.Closer, error) {
	var fd dbus.UnixFD
	err := l.object.CallWithContext(ctx, loginInterface+".Inhibit", 0, "shutdown", who, why, "delay").Store(&fd)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, l.conn.Close())
		}
		return nil, fmt.Errorf("take the shutdown inhibitor: %w", err)
	}
	return os.NewFile(uintptr(fd), "shutdown inhibitor"), nil
}

// MaxDelay is how long a lock may hold a shutdown back: InhibitDelayMaxSec of logind.conf(5).
func (l *Login) MaxDelay(ctx context.Context) (time.Duration, error) {
	var usec uint64
	if err := l.property(ctx, "InhibitDelayMaxUSec", &usec); err != nil {
		return 0, err
	}
	return fromUSec(usec), nil
}

// Preparing reports whether logind has begun to take the host down. A logind that has restarted since has forgotten that.
func (l *Login) Preparing(ctx context.Context) (Shutdown, error) {
	var s Shutdown
	if err := l.property(ctx, "PreparingForShutdown", &s.Down); err != nil || !s.Down {
		return s, err
	}
	var metadata map[string]dbus.Variant
	if err := l.property(ctx, "PreparingForShutdownWithMetadata", &metadata); err == nil { // an older logind has none
		s.How = howOf(metadata)
	}
	return s, nil
}

// Plan is a shutdown that is set for a time, by `shutdown -h +10` or `systemctl reboot --when=...`. Until then it may be called off.
type Plan struct {
	How How
	At  time.Time // zero: nothing is planned
}

// Planned returns the shutdown that logind has set for later. A rehearsal (`shutdown -k`) is none.
func (l *Login) Planned(ctx context.Context) (Plan, error) {
	var set struct {
		Type string
		USec uint64 // since 1970, by the wall clock
	}
	if err := l.property(ctx, "ScheduledShutdown", &set); err != nil {
		return Plan{}, err
	}
	return planOf(set.Type, set.USec), nil
}

// planOf reads the two parts of ScheduledShutdown (org.freedesktop.login1(5)): without a type, or without a time, there is none.
func planOf(how string, usec uint64) Plan {
	if how == "" || usec == 0 || usec > math.MaxInt64 || strings.HasPrefix(how, "dry-") {
		return Plan{}
	}
	return Plan{How(how), time.UnixMicro(int64(usec))}
}

// Inhibitor is a lock that a process holds.
type Inhibitor struct {
	What, Who, Why, Mode string
	UID, PID             uint32
}

// Inhibitors lists the locks of all processes.
func (l *Login) Inhibitors(ctx context.Context) ([]Inhibitor, error) {
	var all []Inhibitor
	err := l.object.CallWithContext(ctx, loginInterface+".ListInhibitors", 0).Store(&all)
	if err != nil {
		return nil, fmt.Errorf("list the inhibitors: %w", err)
	}
	return all, nil
}

// Next blocks until logind says that the host goes down, or that it stays after all. Its error is that of ctx, or ErrLost.
// One goroutine at a time calls it.
func (l *Login) Next(ctx context.Context) (Shutdown, error) {
	for {
		select {
		case <-ctx.Done():
			return Shutdown{}, ctx.Err()
		case s, open := <-l.signals:
			if !open {
				return Shutdown{}, fmt.Errorf("%w: the bus hung up", ErrLost)
			}
			switch said, ok, err := l.hear(s); {
			case err != nil:
				return Shutdown{}, err
			case ok:
				return said, nil
			}
		}
	}
}

// hear reads one signal; ok: it says something about a shutdown. Any program on the bus may send this process a signal of
// any name, so only the sender makes it logind's.
func (l *Login) hear(s *dbus.Signal) (said Shutdown, ok bool, err error) {
	switch {
	case s.Sender == "org.freedesktop.DBus" && s.Name == "org.freedesktop.DBus.NameOwnerChanged":
		var name, from, to string
		if dbus.Store(s.Body, &name, &from, &to) == nil && name == loginName && to != l.owner {
			return Shutdown{}, false, fmt.Errorf("%w: logind has restarted or ended", ErrLost)
		}
	case s.Sender != l.owner:
	case s.Name == loginInterface+"."+signalPrepareMetadata:
		var metadata map[string]dbus.Variant
		if dbus.Store(s.Body, &said.Down, &metadata) == nil {
			l.metadata = true
			said.How = howOf(metadata)
			return said, true, nil
		}
	case s.Name == loginInterface+"."+signalPrepare && !l.metadata:
		// A logind that gives both gives the one with metadata first, as a promise (send_prepare_for in logind-dbus.c).
		return said, dbus.Store(s.Body, &said.Down) == nil, nil
	}
	return Shutdown{}, false, nil
}

func howOf(metadata map[string]dbus.Variant) How {
	word, _ := metadata["type"].Value().(string)
	return How(word)
}

func (l *Login) property(ctx context.Context, name string, value any) error {
	err := l.object.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, loginInterface, name).Store(value)
	if err != nil {
		return fmt.Errorf("ask logind for its %s: %w", name, err)
	}
	return nil
}
