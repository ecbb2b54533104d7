package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/durable"
)

func TestDirsByAge(t *testing.T) {
	dir := t.TempDir()
	then := time.Now().Add(-time.Hour)
	for i, name := range []string{"b", "c", "a"} {
		path, at := filepath.Join(dir, name), then.Add(time.Duration(i)*time.Minute)
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	all, err := durable.Dirs(dir)
	for _, d := range all {
		got.WriteString(d.Name())
	}
	if err != nil || got.String() != "bca" {
		t.Errorf("got %q (%v), want the directories alone, the oldest first", got.String(), err)
	}
	if all, err := durable.Dirs(filepath.Join(dir, "nothing")); !errors.Is(err, fs.ErrNotExist) || len(all) > 0 {
		t.Errorf("got %v (%v) where there is nothing", all, err)
	}
}

func TestWriteFileReplacesWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "page")
	for _, want := range []string{strings.Repeat("old", 1000), "new"} {
		if err := durable.WriteFile(path, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("got %q (%v), want %q", got, err, want)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v (%v), want 0600", info.Mode(), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("got %v (%v) left behind", left, err)
	}
}

// A page that cannot be put in place leaves the old one there, and no draft.
func TestWriteFileLeavesTheOldOnFailure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "page")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := durable.WriteFile(path, []byte("new")); err == nil {
		t.Error("a directory was replaced")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("got %v (%v) left behind", left, err)
	}
	if err := durable.WriteFile(filepath.Join(dir, "absent", "page"), nil); err == nil {
		t.Error("a file was written where there is no directory")
	}
}

// A process that is killed amid a WriteFile leaves its draft. The next one to own the directory removes that, and nothing else.
func TestSweepRemovesDrafts(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".new-1", ".new-23", "page", ".newer"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := durable.Sweep(filepath.Join(dir, "absent"), dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 || left[0].Name() != ".newer" {
		t.Errorf("got %v (%v), want .newer and page", left, err)
	}
}
