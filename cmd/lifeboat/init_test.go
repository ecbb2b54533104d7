package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A coordinator that answers no is not asked again for half a minute, and its reason is not that it does not run yet.
func TestInitTakesANo(t *testing.T) {
	f := newFleet(t, false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	i := &initialiser{advertise: f.coordinator, dir: f.dir, life: time.Hour}
	if _, err := i.token(ctx); err == nil || ctx.Err() != nil || !strings.HasPrefix(err.Error(), "make a join token: ") {
		t.Errorf("got %v, after all of its time: %t", err, ctx.Err() != nil)
	}
}

// A coordinator whose settings have a port of its own is asked there, and others are told to.
func TestInitGoesByThePortOfTheSettings(t *testing.T) {
	dir := t.TempDir()
	if code, _, stderr := lifeboat(t, "init", "--no-start", "--advertise", "127.0.0.1", "--name", "c1", "--dir", dir, "--data-dir", filepath.Join(dir, "data")); code != exitDone {
		t.Fatal(stderr)
	}
	file := filepath.Join(dir, "coordinator.yaml")
	for listen, want := range map[string]map[string]string{
		"": {"10.0.0.1": "10.0.0.1"},
		"listen: {grpc: 0.0.0.0:17411}\n": {
			"10.0.0.1": "10.0.0.1:17411", "fd00::1": "[fd00::1]:17411", "[fd00::1]": "[fd00::1]:17411", "10.0.0.1:9": "10.0.0.1:9", "c1.example.net": "c1.example.net:17411",
		},
	} {
		settings, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(dir, "other.yaml")
		if err := os.WriteFile(other, append(settings, listen...), 0o644); err != nil {
			t.Fatal(err)
		}
		for advertise, want := range want {
			i := &initialiser{advertise: advertise, dir: dir}
			if err := i.goBy(other); err != nil || i.address() != want {
				t.Errorf("%q, at %s: got %s, %v, want %s", listen, advertise, i.address(), err, want)
			}
		}
	}
}
