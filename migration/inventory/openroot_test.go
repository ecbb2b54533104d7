package inventory

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shutDownXFS is an XFS that has shut down, as it does when its disk is gone: each call returns an error.
func shutDownXFS(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounts a file system: needs root")
	}
	mkfs, err := exec.LookPath("mkfs.xfs")
	if err != nil {
		t.Skip("needs mkfs.xfs, of xfsprogs")
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 320<<20); err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{{mkfs, "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%v: %v: %s", line, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	write(t, filepath.Join(dir, "there"), []byte("x"))
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const goingDown, atOnce = 0x8004587d, 2 // XFS_IOC_GOINGDOWN, XFS_FSOP_GOING_FLAGS_NOLOGFLUSH (linux/fs/xfs/libxfs/xfs_fs.h)
	flags := uint32(atOnce)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), goingDown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		t.Skipf("shut it down: %v", errno)
	}
	return dir
}

// With ProtectSystem=strict, which the documents propose for the unit, /tmp cannot be written to; it may also be full, or on the dead disk.
func TestStandInNeedsNoDisk(t *testing.T) {
	if _, err := os.Stat(inMemory); err != nil {
		t.Skip(err)
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "nowhere"))
	o := standIn("/mnt/d0", unix.EIO)
	if o.err != nil {
		t.Fatal(o.err)
	}
	defer o.root.Close()
	if err := o.root.Mkdir("x", 0o700); err == nil {
		t.Error("something can be made in a stand-in")
	}
}

// A store with one dead disk of two opens: an agent that does not start protects nothing. A scan yields what is on the other disk, and
// an error for what is not read.
func TestStoreWithADeadDisk(t *testing.T) {
	dead, well := shutDownXFS(t), t.TempDir()
	write(t, filepath.Join(well, "alive"), []byte("x"))
	s, err := OpenStore(StoreConfig{Name: "cache", Kind: KindCache, Layout: LayoutFiles, Land: LandPlace, Paths: []string{dead, well}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var met, missed []string
	for it, err := range s.Scan(t.Context()) {
		switch {
		case err != nil:
			missed = append(missed, err.Error())
		case it.Carried():
			met = append(met, it.ID.Name())
		}
	}
	if len(met) != 1 || met[0] != "alive" {
		t.Errorf("met %q, want what is on the disk that is well", met)
	}
	if len(missed) != 1 || !strings.Contains(missed[0], dead) {
		t.Errorf("got the errors %q, want one, about %s", missed, dead)
	}
	if _, err := s.Find("cache/-/there"); errors.Is(err, os.ErrNotExist) && s.whole() == nil {
		t.Errorf("what is on the dead disk is not there: %v", err)
	}
	if err := s.Away(dead); err == nil || !strings.Contains(err.Error(), "input/output error") {
		t.Errorf("got %v, want that it cannot be opened", err)
	}
	if err := s.Away(well); err != nil {
		t.Errorf("of the other got %v", err)
	}
}
