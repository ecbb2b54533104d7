package registry

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the registry that the log makes")

// A log with every verb makes the same registry as it did when it was written. Coordinators of two versions share a log while they are
// upgraded, and each has to make the same of it. So where a change makes another registry of this one, CommandVersion has to rise.
func TestLogMakesTheSameRegistry(t *testing.T) {
	log, err := os.ReadFile("testdata/log.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	m := New()
	for line := range bytes.Lines(log) {
		c := Command{Term: 2}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		if again := written(t, c); again+"\n" != string(line) {
			t.Errorf("got the command\n%s, want\n%s", again, line)
		}
		_, _ = m.Apply(c) // the last one is refused
	}
	got, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/registry.json"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the log makes another registry: go test ./coordinator/registry -run %s -update shows what changed, in git diff", t.Name())
	}
	again, err := Thaw(want)
	if err != nil || written(t, again) != written(t, m) {
		t.Errorf("the registry is not read as it was written (%v)", err)
	}
}
