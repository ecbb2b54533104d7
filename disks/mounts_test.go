package disks

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func table1(t testing.TB, text string) mounts {
	t.Helper()
	all, err := readMounts(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The first four rows are Celeborn's own.
func TestMountOfPath(t *testing.T) {
	celeborn := `1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 8:17 / /mnt/disk1 rw - ext4 /dev/sdb1 rw
3 1 8:33 / /mnt/disk2 rw - ext4 /dev/sdc1 rw
4 1 8:49 / /data rw - ext4 /dev/sdd1 rw
`
	hidden := `1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 8:17 / /mnt rw - ext4 /dev/sdb1 rw
3 2 8:33 / /mnt/disk rw - ext4 /dev/sdc1 rw
4 3 8:34 / /mnt/disk rw - ext4 /dev/sdc2 rw
5 4 8:35 / /mnt/disk/in rw - ext4 /dev/sdc3 rw
`
	for _, row := range []struct {
		table, path, point, dev string
	}{
		{celeborn, "/mnt/disk1/data", "/mnt/disk1", "8:17"},
		{celeborn, "/mnt/disk3/data", "/", "8:1"},
		{celeborn, "/data", "/data", "8:49"},
		{celeborn, "/data1/data", "/", "8:1"},
		{celeborn, "/mnt/disk11", "/", "8:1"},
		{celeborn, "/", "/", "8:1"},
		{hidden, "/mnt/disk/x", "/mnt/disk", "8:34"}, // the newer of two at one point
		{hidden, "/mnt/disk/in/x", "/mnt/disk/in", "8:35"},
		{hidden + "6 2 8:50 / /mnt rw - ext4 /dev/sde rw\n", "/mnt/disk/in/x", "/mnt", "8:50"}, // it hides all below
	} {
		m, ok := table1(t, row.table).at(row.path)
		if !ok || m.point != row.point || m.dev.String() != row.dev {
			t.Errorf("%s: got %s on %s, want %s on %s", row.path, m.dev, m.point, row.dev, row.point)
		}
	}
	if m, ok := mounts(nil).at("/x"); ok {
		t.Errorf("nothing is mounted: got %+v", m)
	}
	if m, ok := table1(t, "7 7 0:2 / / rw - rootfs rootfs rw").at("/x"); !ok || m.fs != "rootfs" {
		t.Errorf("a root that is its own parent: got %+v, %v", m, ok)
	}
}

func TestMountinfoIsParsed(t *testing.T) {
	for line, want := range map[string]mount{
		`36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`:   {36, 35, number{98, 0}, "/mnt2", "ext3", "/dev/root"},
		`36 35 0:45 / /with\040space\011and\134 rw shared:1 master:2 - fuse.s3 s3\0401 rw`: {36, 35, number{0, 45}, "/with space\tand\\", "fuse.s3", "s3 1"},
		`36 35 0:45 / /a rw - tmpfs  rw`: {36, 35, number{0, 45}, "/a", "tmpfs", "rw"},
	} {
		if got, err := parseMount(line); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", line, got, err)
		}
	}
	for _, line := range []string{"", "1 2 3", "x 1 8:1 / / rw - ext4 /dev/sda rw", "1 1 8 / / rw - ext4 /dev/sda rw", "1 1 8:1 / / rw ext4 /dev/sda rw"} {
		if got, err := readMounts(strings.NewReader(line + "\n")); err == nil {
			t.Errorf("%q: got %+v, want an error", line, got)
		}
	}
}

func FuzzMountinfo(f *testing.F) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b), "/tmp")
	f.Add("1 1 8:1 / / rw - ext4 /dev/sda rw\n2 1 8:1 / / rw - a b\n3 2 1:1 / / rw - a b", "/a")
	f.Add("2 1 8:1 / / rw - a b\n2 2 8:1 / / rw - a b\n", "/")
	f.Fuzz(func(t *testing.T, text, path string) {
		all, err := readMounts(strings.NewReader(text))
		if err != nil {
			return
		}
		if m, ok := all.at(path); ok && m.point != "/" && !below(path, m.point) {
			t.Errorf("%q lies on %q", path, m.point)
		}
	})
}

func TestMountsOfThisMachine(t *testing.T) {
	table, err := openMounts()
	if err != nil {
		t.Fatal(err)
	}
	defer table.close()
	all, err := table.read()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/proc", "/dev/shm"} {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Skip(err)
		}
		if m, ok := all.at(path); !ok || m.dev != numberOf(st.Dev) {
			t.Errorf("%s: got %+v, want the device %v", path, m, numberOf(st.Dev))
		}
	}
}

func TestMountIsNoticed(t *testing.T) {
	mayMount(t)
	table, err := openMounts()
	if err != nil {
		t.Fatal(err)
	}
	defer table.close()
	dir := t.TempDir()
	count := func() (n int) {
		all, err := table.read()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.point == dir {
				n++
			}
		}
		return n
	}
	table.changed()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip(err)
	}
	start := time.Now()
	if changed, n := table.changed(), count(); !changed || n != 1 {
		t.Errorf("mounted: changed is %v, seen %d times", changed, n)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	if changed, n := table.changed(), count(); !changed || n != 0 {
		t.Errorf("unmounted: changed is %v, seen %d times", changed, n)
	}
	t.Logf("both seen within %v", time.Since(start))
}
