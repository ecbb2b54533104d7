package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

// What FromJSON takes is what encoding/json takes that knows all keys, except null.
func FuzzFromJSON(f *testing.F) {
	for _, s := range []string{
		`{"windows": [{"machine_ids": [{"hostname": "a", "ip": "10.0.0.1"}], "unavailability": {"start": {"nanoseconds": 1443830400000000000}, "duration": {"nanoseconds": "5"}}}]}`,
		`{"windws": []}`, `{"windows": [{"start": 0}]}`, `{"WINDOWS": [{"machine_ids": [null], "unavailability": null}]}`, `{"windows": [{}], "windows": {}}`,
		`[{"hostname": "a"}, {"ipp": ""}]`, `[[]]`, `null`, ` `, `{}x`, `{"": 0}`, `{"\u0077indows": []}`, `{"-": 0}`,
		`{"windows": [{}, {"unavailability": {"start": {"nanoseconds": 0.5}}}]}`, `{"windows": [{"unavailability": {"start": {"nanoseconds": {}}}}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		compared[ScheduleJSON](t, body)
		compared[[]MachineJSON](t, body)
	})
}

func compared[T any](t *testing.T, body []byte) {
	t.Helper()
	var got, want T
	err := FromJSON(body, &got)
	strict := json.NewDecoder(bytes.NewReader(body))
	strict.DisallowUnknownFields()
	wrong := strict.Decode(&want)
	if _, more := strict.Token(); wrong == nil && (!errors.Is(more, io.EOF) || string(bytes.TrimSpace(body)) == "null") {
		wrong = errors.New("more, or nothing")
	}
	if (err == nil) != (wrong == nil) {
		t.Fatalf("%q: got %v, and encoding/json says: %v", body, err, wrong)
	}
	if err != nil && !strings.Contains(err.Error(), "at line ") && !strings.Contains(err.Error(), "no JSON") && !strings.HasSuffix(err.Error(), "got null") {
		t.Fatalf("%q: %v: no place", body, err)
	}
}
