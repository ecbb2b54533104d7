package systemd

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// The addresses on the bus of logind, and of another program.
const logind, other = ":1.7", ":1.66"

func metadata(how string) map[string]dbus.Variant {
	return map[string]dbus.Variant{"type": dbus.MakeVariant(how)}
}

func TestHear(t *testing.T) {
	plain := "org.freedesktop.login1.Manager.PrepareForShutdown"
	rich := plain + "WithMetadata"
	owner := "org.freedesktop.DBus.NameOwnerChanged"
	for name, row := range map[string]struct {
		signal   dbus.Signal
		metadata bool // some came before
		want     Shutdown
		ok, lost bool
	}{
		"begins":                    {signal: dbus.Signal{Sender: logind, Name: plain, Body: []any{true}}, want: Shutdown{Down: true}, ok: true},
		"called off":                {signal: dbus.Signal{Sender: logind, Name: plain, Body: []any{false}}, ok: true},
		"how":                       {signal: dbus.Signal{Sender: logind, Name: rich, Body: []any{true, metadata("kexec")}}, want: Shutdown{true, HowKexec}, ok: true},
		"how is missing":            {signal: dbus.Signal{Sender: logind, Name: rich, Body: []any{true, map[string]dbus.Variant{}}}, want: Shutdown{Down: true}, ok: true},
		"how is no text":            {signal: dbus.Signal{Sender: logind, Name: rich, Body: []any{true, map[string]dbus.Variant{"type": dbus.MakeVariant(7)}}}, want: Shutdown{Down: true}, ok: true},
		"said already":              {signal: dbus.Signal{Sender: logind, Name: plain, Body: []any{true}}, metadata: true},
		"from somebody else":        {signal: dbus.Signal{Sender: other, Name: plain, Body: []any{true}}},
		"from somebody else, rich":  {signal: dbus.Signal{Sender: other, Name: rich, Body: []any{true, metadata("poweroff")}}},
		"no body":                   {signal: dbus.Signal{Sender: logind, Name: plain}},
		"another body":              {signal: dbus.Signal{Sender: logind, Name: plain, Body: []any{"true"}}},
		"half a body":               {signal: dbus.Signal{Sender: logind, Name: rich, Body: []any{true}}},
		"another signal":            {signal: dbus.Signal{Sender: logind, Name: "org.freedesktop.login1.Manager.PrepareForSleep", Body: []any{true}}},
		"logind ends":               {signal: dbus.Signal{Sender: "org.freedesktop.DBus", Name: owner, Body: []any{loginName, logind, ""}}, lost: true},
		"logind restarts":           {signal: dbus.Signal{Sender: "org.freedesktop.DBus", Name: owner, Body: []any{loginName, "", other}}, lost: true},
		"logind was started by us":  {signal: dbus.Signal{Sender: "org.freedesktop.DBus", Name: owner, Body: []any{loginName, "", logind}}},
		"another's name":            {signal: dbus.Signal{Sender: "org.freedesktop.DBus", Name: owner, Body: []any{"org.example", logind, ""}}},
		"somebody says logind ends": {signal: dbus.Signal{Sender: other, Name: owner, Body: []any{loginName, logind, ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &Login{owner: logind, metadata: row.metadata}
			said, ok, err := l.hear(&row.signal)
			if said != row.want || ok != row.ok || errors.Is(err, ErrLost) != row.lost {
				t.Errorf("got %+v, %v, %v, want %+v, %v, lost: %v", said, ok, err, row.want, row.ok, row.lost)
			}
		})
	}
}

func TestPlanOf(t *testing.T) {
	at := time.Date(2026, 11, 28, 4, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		how  string
		usec uint64
		want Plan
	}{
		"planned":     {"reboot", uint64(at.UnixMicro()), Plan{HowReboot, at}},
		"nothing":     {"", 0, Plan{}},
		"called off":  {"", 1<<64 - 1, Plan{}},
		"no time":     {"poweroff", 0, Plan{}},
		"endless":     {"poweroff", 1<<64 - 1, Plan{}},
		"a rehearsal": {"dry-reboot", uint64(at.UnixMicro()), Plan{}},
	} {
		if got := planOf(row.how, row.usec); got.How != row.want.How || !got.At.Equal(row.want.At) {
			t.Errorf("%s: got %+v, want %+v", name, got, row.want)
		}
	}
}

func TestNext(t *testing.T) {
	l := &Login{owner: logind, signals: make(chan *dbus.Signal, 4)}
	l.signals <- &dbus.Signal{Sender: other, Name: loginInterface + "." + signalPrepare, Body: []any{true}}
	l.signals <- &dbus.Signal{Sender: logind, Name: loginInterface + "." + signalPrepare, Body: []any{true}}
	if s, err := l.Next(t.Context()); !s.Down || err != nil {
		t.Errorf("got %+v, %v, want logind's word", s, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Next(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	close(l.signals)
	if _, err := l.Next(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("got %v, want %v", err, ErrLost)
	}
}

func TestNobodyToAsk(t *testing.T) {
	t.Setenv(busAddress, "unix:path="+filepath.Join(t.TempDir(), "none"))
	if _, err := OpenLogin(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("logind: got %v, want that there is no socket", err)
	}
	if _, err := GoingDown(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("going down: got %v, want that there is no socket", err)
	}
	h := Facts(t.Context(), "lifeboat.service")
	if h.LoginErr == nil || h.UnitErr == nil || h.Unit.Name != "lifeboat.service" {
		t.Errorf("got %+v, want an error for each question", h)
	}
}

// A bus that takes the connection and never answers blocks no longer than the context allows.
func TestDeafBus(t *testing.T) {
	dir, err := os.MkdirTemp("", "bus") // t.TempDir may be too long for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	address := filepath.Join(dir, "bus")
	bus, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	t.Setenv(busAddress, "unix:path="+address)
	for name, ask := range map[string]func(context.Context) error{
		"logind":     func(ctx context.Context) error { _, err := OpenLogin(ctx); return err },
		"going down": func(ctx context.Context) error { _, err := GoingDown(ctx); return err },
		"facts":      func(ctx context.Context) error { return Facts(ctx, "").LoginErr },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		start := time.Now()
		if err := ask(ctx); err == nil || time.Since(start) > 10*time.Second {
			t.Errorf("%s: got %v after %v, want an error in time", name, err, time.Since(start))
		}
		cancel()
	}
}
