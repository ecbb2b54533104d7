package inventory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A second look finds what has changed, wherever it is. For what has not it only says that it goes on.
func TestASecondLookFindsWhatChanged(t *testing.T) {
	n := newBox(t, with(filesStore, "cache"))
	s := n.stores[0]
	name := func(i int) string { return fmt.Sprintf("%d/%d/%d", i%7, i%21, i) }
	write := func(name, content string) {
		t.Helper()
		p := filepath.Join(n.dir, "cache", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 300 {
		write(name(i), "as it was")
	}
	look := func(since time.Time, most int) (found map[BlockID]time.Duration, goesOn int) {
		found = map[BlockID]time.Duration{}
		whole := s.Shape.Scan(t.Context(), s, 0, Past{Since: since}, func(it Item, err error) bool {
			switch {
			case err != nil:
				t.Error(err)
			case it.ID == "":
				goesOn++
			case len(found) == most:
				t.Errorf("%s comes after the end", it.ID)
			default:
				found[it.ID] = it.Value
			}
			return len(found) < most
		})
		if whole != (len(found) < most) {
			t.Errorf("told that all was seen: %v, with %d blocks of %d", whole, len(found), most)
		}
		return found, goesOn
	}
	if all, goesOn := look(time.Time{}, 1000); len(all) != 300 || goesOn != 0 {
		t.Errorf("the first look found %d blocks and said %d times that it goes on, want 300 and 0", len(all), goesOn)
	}
	began := changeTime(t, filepath.Join(n.dir, "cache", name(299))).Add(1)
	for changeTime(t, n.dir).Before(began) { // until the file system's clock has moved on
		if err := os.Chmod(n.dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(name(3), "written again, in place")
	write("5/new", "new")
	write("new/also", "new")
	write("new/"+ValuesFile, `{"id": "also", "value": "90s"}`)
	want := map[BlockID]time.Duration{BlockID("cache/-/" + name(3)): 0, "cache/-/5/new": 0, "cache/-/new/also": 90 * time.Second}
	found, goesOn := look(began, 1000)
	for id, value := range want {
		if got, ok := found[id]; !ok || got != value {
			t.Errorf("%s: found %v with value %v, want %v", id, ok, got, value)
		}
	}
	if len(found) != len(want) || goesOn == 0 {
		t.Errorf("found %v, and %d times that it goes on; want %v, and some", found, goesOn, want)
	}
	look(began, 1)
}

func TestNobodyYieldsAfterTheEnd(t *testing.T) {
	yielded := 0
	yield := oneByOne(func(Item, error) bool { yielded++; return yielded < 2 })
	for i, want := range []bool{true, false, false} {
		if got := yield(Item{}, nil); got != want {
			t.Errorf("yield %d: got %v, want %v", i, got, want)
		}
	}
	if yielded != 2 {
		t.Errorf("yielded %d times, want 2", yielded)
	}
}

func changeTime(t *testing.T, p string) time.Time {
	t.Helper()
	info, err := os.Stat(p)
	if err != nil {
		t.Fatal(err)
	}
	m, err := MemberOf(0, p, p, regular{info})
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(0, m.ChangeTime)
}

// regular makes a directory pass for a file.
type regular struct{ os.FileInfo }

func (regular) Mode() os.FileMode { return 0 }
