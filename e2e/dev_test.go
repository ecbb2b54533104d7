package e2e_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"
)

// The README's first command, as a program runs it.
func TestDevTellsHowItWent(t *testing.T) {
	story(t)
	for name, c := range map[string]struct {
		args  []string
		exit  int
		check func(devResult) bool
	}{
		"all moved": {[]string{"--blocks", "60", "--bytes", "8MiB", "--rate", "0"}, 0, func(r devResult) bool {
			return r.Node == "node-1" && r.Kind == "terminate" && r.Lead == 120 && r.Total == 60 && r.Moved == 60 && r.Lost == 0 &&
				r.BytesMoved == r.BytesTotal && r.BytesTotal > 7<<20 && r.Seconds > 0 && r.Left > 60 && r.Verified
		}},
		"more than fits into the time": {[]string{"--blocks", "160", "--bytes", "32MiB", "--rate", "1MiB", "--lead", "15s"}, 4, func(r devResult) bool {
			return r.Total == 160 && r.Moved+r.Lost == 160 && r.Moved > 0 && r.Lost > 0 && !r.Verified && r.Left >= 0
		}},
		"nobody to take it": {[]string{"--nodes", "1", "--blocks", "10", "--bytes", "1MiB", "--lead", "15s"}, 4, func(r devResult) bool {
			return r.Total == 10 && r.Lost == 10 && !r.Verified
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), binary, append([]string{"dev", "--exit", "--output", "json", "--dir", t.TempDir() + "/fleet"}, c.args...)...)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			err := cmd.Run()
			if got := cmd.ProcessState.ExitCode(); got != c.exit {
				t.Fatalf("exit code %d (%v), want %d\n%s", got, err, c.exit, errs.String())
			}
			var r devResult
			d := json.NewDecoder(&out)
			d.DisallowUnknownFields()
			if err := d.Decode(&r); err != nil || !c.check(r) {
				t.Errorf("got %+v, %v\n%s", r, err, errs.String())
			}
		})
	}
}

// devResult has the keys of the contract and no others.
type devResult struct {
	Node       string  `json:"node"`
	Kind       string  `json:"kind"`
	Lead       float64 `json:"lead_seconds"`
	Total      int64   `json:"blocks_total"`
	Moved      int64   `json:"blocks_moved"`
	Lost       int64   `json:"blocks_lost"`
	BytesTotal int64   `json:"bytes_total"`
	BytesMoved int64   `json:"bytes_moved"`
	Seconds    float64 `json:"seconds"`
	Left       float64 `json:"deadline_left_seconds"`
	Verified   bool    `json:"verified"`
}
