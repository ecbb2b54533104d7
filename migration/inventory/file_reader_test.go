package inventory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// Files of one directory are read from the directory, and each is still nothing but the file that was planned.
func TestFilesSideBySideAreReadFromTheirDirectory(t *testing.T) {
	n := newBox(t, with(filesStore, "cache"))
	s, dir := n.stores[0], filepath.Join(n.dir, "cache/deep/sub")
	secret := filepath.Join(n.dir, "secret")
	err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(secret, contentOf("secret", 3000), 0o600))
	planned := map[string]Member{}
	for _, name := range []string{"first", "second", "grows", "vanishes", "leads", "last"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), contentOf(name, 3000), 0o644))
		m, lookErr := s.Member(0, "deep/sub/"+name, "deep/sub/"+name)
		planned[name], err = m, errors.Join(err, lookErr)
	}
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "grows"), contentOf("grows", 3001), 0o644),
		os.Remove(filepath.Join(dir, "vanishes")),
		os.Remove(filepath.Join(dir, "leads")), os.Symlink(secret, filepath.Join(dir, "leads")),
		os.Chtimes(secret, planned["leads"].ModTime, planned["leads"].ModTime)); err != nil {
		t.Fatal(err)
	}
	var near FileReader
	read := func(name string, side bool) {
		t.Helper()
		got := make([]byte, 3000)
		if err := near.Read(s, planned[name], got); err != nil || string(got) != string(contentOf(name, 3000)) {
			t.Errorf("%s: it was not read: %v", name, err)
		}
		if open := near.fd != 0; open != side {
			t.Errorf("after %s its directory is kept open: %v, want %v", name, open, side)
		}
	}
	refuse := func(name string, want error) {
		t.Helper()
		if err := near.Read(s, planned[name], make([]byte, 3000)); !errors.Is(err, want) {
			t.Errorf("%s: got error %v, want %v", name, err, want)
		}
	}
	outside := func(name string) {
		t.Helper()
		if err := near.Read(s, planned[name], make([]byte, 3000)); err == nil {
			t.Errorf("%s: a link led out of the store", name)
		}
	}
	read("first", false)
	read("second", true)
	refuse("grows", ErrChanged)
	read("last", true)
	refuse("vanishes", fs.ErrNotExist)
	read("first", false)
	read("second", true)
	outside("leads")
	near.Leave()

	// By the time of the next batch another directory has the name.
	elsewhere := filepath.Join(n.dir, "elsewhere")
	if err := errors.Join(os.Rename(dir, elsewhere), os.Symlink(elsewhere, dir)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		outside("first")
	}
	if near.Leave(); near.fd != 0 || near.store != nil {
		t.Errorf("left with %+v", near)
	}
}

// A disk that does not answer is not asked for a file, nor for the file's directory.
func TestNothingIsReadFromADiskThatDoesNotAnswer(t *testing.T) {
	n := newBox(t, with(filesStore, "cache"))
	s, disks := n.stores[0], &silentDisks{Disks: diskio.OrWell(nil)}
	s.Watch(disks)
	plainFile(t, filepath.Join(n.dir, "cache/sub/x"), contentOf("x", 100))
	planned, err := s.Member(0, "sub/x", "sub/x")
	if err != nil {
		t.Fatal(err)
	}
	var near FileReader
	for _, row := range []struct{ bad, read, open bool }{
		{bad: true}, {bad: true}, {bad: true}, // the second would open the directory
		{read: true, open: true}, {read: true, open: true},
	} {
		disks.hang(s.Paths[0], row.bad)
		err := near.Read(s, planned, make([]byte, 100))
		if diskio.IsSilent(err) == row.read || err != nil && row.read || (near.fd != 0) != row.open {
			t.Errorf("disk bad %v: got error %v, directory open %v; want %+v", row.bad, err, near.fd != 0, row)
		}
	}
	near.Leave()
	disks.hang(s.Paths[0], true)
	if err := near.Read(s, planned, make([]byte, 100)); !diskio.IsSilent(err) {
		t.Errorf("after it was left: got error %v", err)
	}
}
