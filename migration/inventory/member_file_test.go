package inventory

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestOpenBeneath(t *testing.T) {
	n := newBox(t, with(filesStore, "cache"))
	s := n.stores[0]
	file := filepath.Join(n.dir, "cache/sub/x")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, contentOf("x", 5000), 0o644)); err != nil {
		t.Fatal(err)
	}
	m, err := s.Member(0, "sub/x", "sub/x")
	if err != nil {
		t.Fatal(err)
	}
	read := func(t *testing.T) {
		t.Helper()
		f, err := s.OpenBeneath(m)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got, err := io.ReadAll(f)
		if err != nil || string(got) != string(contentOf("x", 5000)) {
			t.Errorf("got %d bytes and error %v, want the file", len(got), err)
		}
		if err := StillSame(f, m); err != nil {
			t.Errorf("nothing has changed: %v", err)
		}
		if err := StillSame(f, Member{Bytes: m.Bytes, ModTime: m.ModTime.Add(1)}); !errors.Is(err, ErrChanged) {
			t.Errorf("another modification time: got error %v", err)
		}
		if err := StillSame(f, Member{Bytes: m.Bytes + 1, ModTime: m.ModTime}); !errors.Is(err, ErrChanged) {
			t.Errorf("another size: got error %v", err)
		}
	}
	unused := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(file, unused, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := StillSame(memberFileOf(t, s, m), m); err != ErrTouched {
		t.Errorf("its stamps were set, and it says %v", err)
	}
	if m, err = s.Member(0, "sub/x", "sub/x"); err != nil {
		t.Fatal(err)
	}
	read(t)
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil || !time.Unix(st.Atim.Unix()).Equal(unused) {
		t.Errorf("last used %v, want %v: an engine may throw out by that what nobody used (%v)", time.Unix(st.Atim.Unix()), unused, err)
	}
	if _, err := s.OpenBeneath(Member{Path: "sub/gone"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is gone: got error %v", err)
	}
	secret := filepath.Join(n.dir, "secret")
	if err := os.WriteFile(secret, []byte("not of the store"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"absolute": secret, "above": "../../secret"} {
		if err := os.Symlink(to, filepath.Join(n.dir, "cache/sub", name)); err != nil {
			t.Fatal(err)
		}
		if f, err := s.OpenBeneath(Member{Path: "sub/" + name}); err == nil {
			f.Close()
			t.Errorf("%s: a link led out of the store", name)
		}
	}
	// On a kernel without openat2 the os.Root opens the file.
	notADir, err := os.Open(secret)
	if err != nil {
		t.Fatal(err)
	}
	s.DirFiles[0].Close()
	s.DirFiles[0] = notADir
	read(t)
}

func memberFileOf(t *testing.T, s *Store, m Member) io.Reader {
	t.Helper()
	f, err := s.OpenBeneath(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
