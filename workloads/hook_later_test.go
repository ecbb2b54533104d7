package workloads

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A hook whose state has no room, as when something fills /run, is started once there is room again.
func TestHookWaitsForRoom(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	state := t.TempDir()
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(state, unix.MNT_DETACH) })
	hog := filepath.Join(state, "hog")
	if err := os.WriteFile(hog, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("fill %s: got %v", state, err)
	}
	heard := make(chan error, 1)
	h := testHook(state, "exit 3")
	var hearing sync.WaitGroup
	ctx, end := context.WithCancel(hearTrouble(within(t, 20*time.Second), &hearing, func(err error) {
		heard <- err
		os.Remove(hog)
	}))
	errorWith(t, h.Tell(ctx, testWord(PhaseNoticed)), "hook drain: exit status 3")
	end()
	hearing.Wait()
	errorWith(t, <-heard, "hook drain: not started yet", "no space left on device")
}

// A program that is being written, as while a package is upgraded, cannot be run yet. It is tried until the time is up.
func TestHookWhoseProgramIsBeingWritten(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	f, err := os.OpenFile(program, os.O_WRONLY|os.O_CREATE, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("#!/bin/sh\n"); err != nil {
		t.Fatal(err)
	}
	h := Hook{Name: "drain", Argv: []string{program}, State: t.TempDir()}
	errorWith(t, h.Tell(within(t, 2*time.Second), testWord(PhaseNoticed)), "stopped, as the time is up: ", "text file busy")
}
