package main

import (
	"bytes"
	"io"
	"path/filepath"
	"testing"
)

// A script that schedules one file after the other reads their names from the stdin that the verb has as well.
func TestScheduleOfAFileLeavesStdinAlone(t *testing.T) {
	f := newFleet(t, false)
	f.put(t, "maintenance.json", `{}`)
	f.put(t, "plan.json", `{"windows": []}`)
	names := bytes.NewBufferString("plan-2.json\n")
	cmd := maintenanceScheduleCommand()
	cmd.SetIn(struct{ io.Reader }{names}) // as a file is, without WriteTo
	cmd.SetOut(io.Discard)
	cmd.SetArgs([]string{filepath.Join(f.dir, "plan.json"), "--coordinator", f.coordinator, "--tls-dir", f.tls})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names.Len() == 0 {
		t.Error("it took what the script was to read next")
	}
}
