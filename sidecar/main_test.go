package sidecar

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

// TestMain lets this binary supervise the programs of hooks, as lifeboat does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workloads.SupervisorArg {
		os.Exit(workloads.Supervise(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// A full or broken disk keeps no program from running.
func TestBrokenDiskHoldsUpNoHook(t *testing.T) {
	dir := t.TempDir()
	broken, ran := filepath.Join(dir, "broken"), filepath.Join(dir, "ran")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		DataDir: filepath.Join(broken, "data"), Listen: Listen{Socket: filepath.Join(dir, "run", "sidecar.sock")},
		Actions: []Action{{Name: "drain", Hook: Hook{Command: []string{"/bin/sh", "-c", `: > "$0"`, ran}}}},
	}
	actions, err := cfg.build(Deps{})
	if err != nil {
		t.Fatal(err)
	}
	if err := actions[0].Tell(t.Context(), workloads.Word{Phase: noticed, Incident: "inc-1"}); err != nil {
		t.Errorf("telling: %v, want it run: it needs nothing of that disk", err)
	}
	if _, err := os.Stat(ran); err != nil {
		t.Error(err)
	}
}

// A service manager that takes no more messages holds nobody up, neither at the start nor later.
func TestDeafManagerHoldsUpNobody(t *testing.T) {
	dir := shortDir(t)
	at := filepath.Join(dir, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	full, err := net.Dial("unixgram", at)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for err == nil {
		full.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = full.Write([]byte("STATUS=another unit's"))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", at)

	cfg := Default()
	cfg.DataDir, cfg.Listen = filepath.Join(dir, "data"), Listen{Socket: filepath.Join(dir, "socket")}
	cfg.Cloud = preemption.Settings{Provider: "none"}
	a := Action{Name: "one"}
	a.Webhook.URL = "http://replaced.test"
	cfg.Actions = []Action{a}
	s, err := New(t.Context(), cfg, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	words := make(chan workloads.Phase, 9)
	s.actions[0].Action = &fake{tell: func(_ context.Context, w workloads.Word) error { words <- w.Phase; return nil }}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.manual.Say(preemption.Notice{})
	for _, want := range []workloads.Phase{noticed, withdrawn} {
		select {
		case got := <-words:
			if got != want {
				t.Errorf("told %s, want %s", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s is not told", want)
		}
		s.manual.Withdraw("")
	}
	for late := time.After(10 * time.Second); s.incidents.IsOpen(); {
		select {
		case <-s.incidents.Changes():
		case <-late:
			t.Fatal("the incident is not closed")
		}
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it does not end")
	}
}
