package manifest

import (
	"encoding/json"
	"testing"
)

// The lines of a manifest are what encoding/json would write and read.
func FuzzLine(f *testing.F) {
	f.Add("cache/-/x", int64(4096), "moved", "node-b", "", "00112233445566778899aabbccddeeff")
	f.Add("cache/-/\"quoted\\\" <&> \u2028 \xff \x00 é", int64(-1), "lost", "", "disk /data does not answer", "")
	f.Fuzz(func(t *testing.T, id string, bytes int64, outcome, peer, reason, version string) {
		e := Entry{id, bytes, Outcome(outcome), peer, reason, version}
		want, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		line := e.AppendLine(nil)
		if string(line) != string(want)+"\n" {
			t.Fatalf("got %s, want %s", line, want)
		}
		sameEntry(t, line)
	})
}

func FuzzForeignLine(f *testing.F) {
	for _, line := range []string{
		`{"id":"a","bytes":1,"outcome":"moved"}`, `{"id":"a","bytes":01,"outcome":"moved"}`, `{"id":"a","bytes":+1,"outcome":"moved"}`,
		`{"bytes":1,"id":"a"}`, `{"id":"a","bytes":1,"outcome":"lost","reason":"","later":{}}`, `{"id":"a`, `{"id":"a","bytes":,"outcome":""}`,
	} {
		f.Add([]byte(line + "\n"))
	}
	f.Fuzz(sameEntry)
}

// sameEntry checks that a line says to ParseLine what it says to encoding/json.
func sameEntry(t *testing.T, line []byte) {
	var want Entry
	wantErr := json.Unmarshal(line, &want)
	if got, err := ParseLine(line); got != want || (err == nil) != (wantErr == nil) {
		t.Fatalf("%q: got %+v, %v, want %+v, %v", line, got, err, want, wantErr)
	}
}
