package systemd

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// manager listens where systemd would.
func manager(t *testing.T) *net.UnixConn {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify") // t.TempDir may be too long for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	addr := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: addr, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", addr)
	return conn
}

func TestMessages(t *testing.T) {
	conn := manager(t)
	for want, say := range map[string]func() error{
		"READY=1":                     Ready,
		"STOPPING=1":                  Stopping,
		"EXTEND_TIMEOUT_USEC=2000000": func() error { return Starting(2 * time.Second) },
		"WATCHDOG=1":                  Alive,
		"STATUS=moved 7 of 9":         func() error { return Status("moved %d of %d", 7, 9) },
		"STATUS=reason: x READY=1":    func() error { return Status("reason: %s", "x\nREADY=1\n") },
	} {
		if err := say(); err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1024)
		n, err := conn.Read(buf)
		if got := string(buf[:n]); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

func TestNothingHappensOutsideOfSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "")
	for _, err := range []error{Ready(), Stopping(), Alive(), Status("x")} {
		if err != nil {
			t.Errorf("got %v, want nil", err)
		}
	}
	if got, err := WatchdogInterval(); got != 0 || err != nil {
		t.Errorf("watchdog: got %v, %v, want none", got, err)
	}
}

func TestDeafManagerIsAnError(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	if err := Ready(); err == nil {
		t.Error("got nil, want an error")
	}
}

func TestWatchdogInterval(t *testing.T) {
	me := strconv.Itoa(os.Getpid())
	for name, row := range map[string]struct {
		usec, pid string
		want      time.Duration
		wrong     bool
	}{
		"for us":            {"30000000", me, 15 * time.Second, false},
		"for anybody":       {"30000000", "", 15 * time.Second, false},
		"for another":       {"30000000", "1", 0, false},
		"not a number":      {"soon", me, 0, true},
		"not a time at all": {"-1", me, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("WATCHDOG_USEC", row.usec)
			t.Setenv("WATCHDOG_PID", row.pid)
			if got, err := WatchdogInterval(); got != row.want || (err != nil) != row.wrong {
				t.Errorf("got %v, %v, want %v", got, err, row.want)
			}
		})
	}
}

// The watchdog is fed after each look, every half limit, and not while a look does not return.
func TestKeepAliveFeedsWhatLooksAlive(t *testing.T) {
	conn := manager(t)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	ctx, cancel := context.WithCancel(t.Context())
	looks, stuck := 0, make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		KeepAlive(ctx, slog.New(slog.DiscardHandler), func() {
			if looks++; looks == 3 {
				cancel()
				close(stuck)
				runtime.Goexit() // as far as the manager can tell, it never comes back
			}
		})
	}()
	<-stuck
	<-ended
	buf := make([]byte, 64)
	for range 2 {
		if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "WATCHDOG=1" {
			t.Errorf("got %q, %v, want the watchdog fed", buf[:n], err)
		}
	}
	if err := conn.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(buf); err == nil {
		t.Errorf("got %q beside a look that does not come back", buf[:n])
	}
}
