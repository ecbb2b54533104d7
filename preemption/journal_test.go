package preemption

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/durable"
)

func newJournal(t *testing.T) *journal[string] {
	t.Helper()
	j, err := openJournal[string](t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func somePage(id string) Page[string] {
	now := time.Date(2026, 11, 21, 12, 0, 0, 123, time.UTC)
	return Page[string]{
		Incident: Incident{ID: id, Notices: []Notice{{
			Source: SourceEC2, ID: "spot/instance-action", Kind: KindTerminate, Deadline: now.Add(2 * time.Minute), SeenAt: now, Reason: "a reason",
		}}},
		Begun: true,
		Work:  "half of it",
	}
}

func text(t *testing.T, p Page[string]) []byte {
	t.Helper()
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A restart reads exactly what was written, to the last digit of the deadline.
func TestJournalKeepsAPage(t *testing.T) {
	j := newJournal(t)
	if _, ok, err := j.read(); ok || err != nil {
		t.Errorf("an empty journal: got a page %v, error %v", ok, err)
	}
	want := somePage("inc-1")
	if err := j.write(text(t, want)); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := j.read(); !ok || err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v %v %v, want %+v", got, ok, err, want)
	}
	if left, _ := filepath.Glob(filepath.Join(j.dir, ".new-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Going on without a page that cannot be read would forget a notice.
func TestJournalRefusesADamagedPage(t *testing.T) {
	j := newJournal(t)
	if err := os.WriteFile(j.path(), []byte(`{"incident":{"id":"inc-`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, ok, err := j.read()
	if ok || err == nil || !strings.Contains(err.Error(), j.path()) || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("got %v %v, want an error that names the file and the remedy", ok, err)
	}
}

// A failed write leaves the page from before.
func TestJournalSurvivesAFailedWrite(t *testing.T) {
	j := newJournal(t)
	want := somePage("inc-1")
	if err := j.write(text(t, want)); err != nil {
		t.Fatal(err)
	}
	away := j.dir + ".away"
	if err := os.Rename(j.dir, away); err != nil {
		t.Fatal(err)
	}
	if err := j.write(text(t, somePage("inc-2"))); err == nil {
		t.Error("wrote into a directory that is not there")
	}
	if err := os.Rename(away, j.dir); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := j.read(); !ok || err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v %v %v, want the page of before", got, ok, err)
	}
}

func TestJournalKeepsTheLastIncidents(t *testing.T) {
	j := newJournal(t)
	then := time.Now().Add(-time.Hour)
	for i := range keptIncidents + 3 {
		p := somePage(fmt.Sprintf("inc-%d", i))
		if err := j.write(text(t, p)); err != nil {
			t.Fatal(err)
		}
		p.Closed = "withdrawn"
		if err := j.close(p.Incident.ID, text(t, p)); err != nil {
			t.Fatal(err)
		}
		at := then.Add(time.Duration(i) * time.Minute) // apart, whatever the file system's clock does
		if err := os.Chtimes(j.dirOf(p.Incident.ID), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok, err := j.read(); ok || err != nil {
		t.Errorf("got an open page %v, error %v; want none", ok, err)
	}
	newest := fmt.Sprintf("inc-%d", keptIncidents+2)
	if p, ok, err := j.lastEnded(); !ok || err != nil || p.Incident.ID != newest || p.Closed != "withdrawn" {
		t.Errorf("got %+v %v %v, want %s", p, ok, err, newest)
	}
	if dirs, err := durable.Dirs(j.dirOf("")); err != nil || len(dirs) != keptIncidents {
		t.Errorf("got %v %v, want the last %d", dirs, err, keptIncidents)
	}
}

// The account of a drain that has just ended is kept, although earlier ones are from a time when the clock was ahead.
func TestJournalKeepsTheNewestIncidentWhenTheClockWasSetBack(t *testing.T) {
	j := newJournal(t)
	for i := range keptIncidents + 1 {
		id := fmt.Sprintf("inc-%d", i)
		if err := j.close(id, text(t, somePage(id))); err != nil {
			t.Fatal(err)
		}
		ahead := time.Now().Add(24*time.Hour + time.Duration(i)*time.Minute)
		if err := os.Chtimes(j.dirOf(id), ahead, ahead); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.close("inc-newest", text(t, somePage("inc-newest"))); err != nil {
		t.Fatal(err)
	}
	dirs, err := durable.Dirs(j.dirOf(""))
	if err != nil || len(dirs) != keptIncidents || dirs[0].Name() != "inc-newest" {
		t.Errorf("got %v %v, want %d, the newest among them", dirs, err, keptIncidents)
	}
}
