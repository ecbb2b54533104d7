package interop_test

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
)

// python is the interpreter for which Debian installs python3-dbusmock.
const python = "/usr/bin/python3"

// logind is the logind of python3-dbusmock, on a bus of its own.
type logind struct {
	conn *dbus.Conn
	mock *exec.Cmd
}

// startLogind starts a bus and the mock. It skips the test if there is no mock, or LIFEBOAT_INTEROP=1 is not set.
func startLogind(t *testing.T) *logind {
	t.Helper()
	if os.Getenv("LIFEBOAT_INTEROP") != "1" {
		t.Skip("LIFEBOAT_INTEROP=1 is not set: other people's programs are not run")
	}
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import dbusmock").CombinedOutput(); err != nil {
		t.Skipf("python3-dbusmock is not installed: %v\n%s", err, out)
	}
	dir, err := os.MkdirTemp("", "bus") // t.TempDir may be too long for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	address := "unix:path=" + filepath.Join(dir, "bus")
	beginProgram(t, "dbus-daemon", "--session", "--nofork", "--print-address=1", "--address="+address)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", address)

	l := &logind{}
	if l.conn, err = dbus.Connect(address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.conn.Close() })
	l.start(t)
	return l
}

// beginProgram runs a program until the test ends. It returns when the program has written a line; python writes none.
func beginProgram(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "PYTHONUNBUFFERED=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("%s does not start: %v", name, err)
	}
	t.Cleanup(func() { stopProgram(t, cmd) })
	if name == python {
		return cmd // its name on the bus shows that it runs
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return cmd
}

func stopProgram(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	_ = cmd.Wait() // killed
}

// start starts the mock and waits until it has logind's name on the bus.
func (l *logind) start(t *testing.T) {
	t.Helper()
	owners := make(chan *dbus.Signal, 16)
	l.conn.Signal(owners)
	defer l.conn.RemoveSignal(owners)
	if err := l.conn.AddMatchSignal(dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, "org.freedesktop.login1")); err != nil {
		t.Fatal(err)
	}
	l.mock = beginProgram(t, python, "-m", "dbusmock", "--system", "--template", "logind")
	for {
		select {
		case s := <-owners:
			if len(s.Body) < 3 || s.Body[2] == "" { // another signal, or the end of an earlier mock
				continue
			}
		case <-time.After(patience):
			t.Fatal("the mock did not come up")
		}
		break
	}
	l.call(t, "org.freedesktop.DBus.Mock.AddProperty", "org.freedesktop.login1.Manager", "InhibitDelayMaxUSec", dbus.MakeVariant(uint64(7_000_000)))
}

func (l *logind) call(t *testing.T, method string, args ...any) {
	t.Helper()
	object := l.conn.Object("org.freedesktop.login1", "/org/freedesktop/login1")
	if err := object.CallWithContext(t.Context(), method, 0, args...).Err; err != nil {
		t.Fatalf("%s: %v", method, err)
	}
}

// prepare has logind begin a shutdown, or cancel it. It sends the one signal of an older logind.
func (l *logind) prepare(t *testing.T, down bool) {
	t.Helper()
	l.property(t, "PreparingForShutdown", down)
	l.call(t, "org.freedesktop.DBus.Mock.EmitSignal", "org.freedesktop.login1.Manager", "PrepareForShutdown", "b", []any{down})
}

// prepareWithMetadata does the same as logind does since systemd 255: it sends the signal with metadata first, then the
// older one.
func (l *logind) prepareWithMetadata(t *testing.T, down bool, how string) {
	t.Helper()
	l.property(t, "PreparingForShutdown", down)
	metadata := map[string]dbus.Variant{"type": dbus.MakeVariant(how)}
	l.call(t, "org.freedesktop.DBus.Mock.EmitSignal", "org.freedesktop.login1.Manager", "PrepareForShutdownWithMetadata", "ba{sv}", []any{down, metadata})
	l.call(t, "org.freedesktop.DBus.Mock.EmitSignal", "org.freedesktop.login1.Manager", "PrepareForShutdown", "b", []any{down})
}

func (l *logind) property(t *testing.T, name string, value any) {
	t.Helper()
	l.call(t, "org.freedesktop.DBus.Properties.Set", "org.freedesktop.login1.Manager", name, dbus.MakeVariant(value))
}

// locks lists the inhibitor locks that the mock holds, with their owners.
func (l *logind) locks(t *testing.T) (who []string) {
	t.Helper()
	login, err := systemd.OpenLogin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer login.Close()
	all, err := login.Inhibitors(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		who = append(who, strings.Join([]string{i.Who, i.What, i.Mode}, " "))
	}
	return who
}

// awaitLocks waits until the mock has that many locks: it may notice the release of a lock late.
func (l *logind) awaitLocks(t *testing.T, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(l.locks(t)) != want {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("holds %q, want %d locks", l.locks(t), want)
		}
	}
}

// listenToLogind runs the real source against the bus. It returns the source and a function that waits for its next notice.
func listenToLogind(t *testing.T) (*preemption.Logind, func() preemption.Notice) {
	t.Helper()
	source := preemption.NewLogind(preemption.LogindConfig{
		Log:         slog.New(slog.NewTextHandler(t.Output(), nil)),
		GoingDown:   func(context.Context) (systemd.Shutdown, error) { return systemd.Shutdown{}, systemd.ErrNotBooted },
		StopTimeout: func(context.Context) (time.Duration, error) { return 90 * time.Second, nil },
	})
	ctx, cancel := context.WithCancel(t.Context())
	notices, ended := make(chan preemption.Notice, 16), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			n, err := source.Next(ctx)
			if err != nil {
				return
			}
			notices <- n
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return source, func() preemption.Notice {
		t.Helper()
		select {
		case n := <-notices:
			return n
		case <-time.After(patience):
			t.Fatal("no notice")
			return preemption.Notice{}
		}
	}
}

func TestLogind(t *testing.T) {
	mock := startLogind(t)
	source, next := listenToLogind(t)
	mock.awaitLocks(t, 1)
	if got, want := mock.locks(t), []string{"lifeboat shutdown delay"}; !slices.Equal(got, want) {
		t.Errorf("holds %q, want %q", got, want)
	}

	mock.prepare(t, true)
	n := next()
	if n.Source != preemption.SourceLogind || n.Kind != preemption.KindShutdown || n.Withdrawn {
		t.Errorf("got %+v, want a shutdown", n)
	}
	if got := n.Deadline.Sub(n.SeenAt); got != 97*time.Second {
		t.Errorf("%v until the deadline, want the mock's 7s and the unit's 90s", got)
	}
	if got := mock.locks(t); len(got) != 1 {
		t.Errorf("holds %q, want the lock kept until the node is empty", got)
	}
	if err := source.Release(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	mock.awaitLocks(t, 0)

	mock.prepare(t, false)
	if w := next(); !w.Withdrawn || w.ID != n.ID {
		t.Errorf("got %+v, want the notice withdrawn", w)
	}
	mock.awaitLocks(t, 1)

	// Anybody may send a signal of this name; only logind's own counts.
	if err := mock.conn.Emit("/org/freedesktop/login1", "org.freedesktop.login1.Manager.PrepareForShutdown", true); err != nil {
		t.Fatal(err)
	}
	mock.prepareWithMetadata(t, true, "reboot")
	if n := next(); n.Kind != preemption.KindReboot {
		t.Errorf("got %+v, want a reboot", n)
	}
	mock.prepareWithMetadata(t, false, "reboot")
	if w := next(); !w.Withdrawn {
		t.Errorf("got %+v, want it withdrawn", w)
	}
}

func TestLogindRestarts(t *testing.T) {
	mock := startLogind(t)
	source, next := listenToLogind(t)
	mock.awaitLocks(t, 1)
	for range 3 {
		stopProgram(t, mock.mock)
		mock.start(t)
		mock.awaitLocks(t, 1)
	}
	mock.prepare(t, true)
	if n := next(); n.Withdrawn {
		t.Errorf("got %+v, want a shutdown", n)
	}
	if h := source.Health(); len(h) != 1 || h[0].Trouble != "" || time.Since(h[0].LastGood) > time.Minute {
		t.Errorf("health %+v, want all well", h)
	}
}

// A source that left a file open in each of ten rounds would have ten more open. A single one more proves nothing: logind
// lists a lock before the lock's file has come through the socket.
func TestLogindLeavesNothingOpen(t *testing.T) {
	const rounds = 10
	mock := startLogind(t)
	_, next := listenToLogind(t)
	mock.awaitLocks(t, 1)
	before := openFiles(t)
	for range rounds {
		mock.prepare(t, true)
		n := next()
		mock.prepare(t, false)
		if w := next(); n.Withdrawn || !w.Withdrawn {
			t.Errorf("got %+v, then %+v, want a notice and its withdrawal", n, w)
		}
		mock.awaitLocks(t, 1)
	}
	if after := openFiles(t); after >= before+rounds {
		t.Errorf("%d files open after %d rounds, %d before", after, rounds, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return len(open)
}

func TestFactsOfAHost(t *testing.T) {
	mock := startLogind(t)
	listenToLogind(t)
	mock.awaitLocks(t, 1)
	h := systemd.Facts(t.Context(), "")
	if h.LoginErr != nil || h.MaxDelay != 7*time.Second || len(h.Locks) != 1 {
		t.Errorf("got %+v, want a delay of 7s and our lock", h)
	}
	if h.UnitErr == nil {
		t.Errorf("unit %+v, want an error: there is no systemd on this bus", h.Unit)
	}
}
