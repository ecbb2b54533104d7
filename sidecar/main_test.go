package sidecar

import (
	"os"
	"path/filepath"
	"testing"

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
