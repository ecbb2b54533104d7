package disks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Celeborn's vectors for a device that hangs: reads done, writes done, and how many are under way.
func TestStalled(t *testing.T) {
	for name, row := range map[string]struct {
		before, now   counters
		reads, writes bool
	}{
		"idle":                   {counters{Reads: 5, Writes: 5}, counters{Reads: 5, Writes: 5}, false, false},
		"reads hang":             {counters{Reads: 5, Reading: 1}, counters{Reads: 5, Reading: 1}, true, false},
		"more wait":              {counters{Writes: 5, Writing: 3}, counters{Writes: 5, Writing: 9}, false, true},
		"some were done":         {counters{Writes: 5, Writing: 3}, counters{Writes: 6, Writing: 9}, false, false},
		"fewer wait":             {counters{Reads: 5, Reading: 3}, counters{Reads: 5, Reading: 2}, false, false},
		"just begun":             {counters{Reads: 5}, counters{Reads: 5, Reading: 2}, false, false},
		"both":                   {counters{Reads: 1, Reading: 1, Writing: 1}, counters{Reads: 1, Reading: 1, Writing: 1}, true, true},
		"writes hang, reads not": {counters{Reads: 1, Reading: 1, Writing: 1}, counters{Reads: 2, Reading: 1, Writing: 1}, false, true},
	} {
		if reads, writes := stalled(row.before, row.now); reads != row.reads || writes != row.writes {
			t.Errorf("%s: got %v, %v, want %v, %v", name, reads, writes, row.reads, row.writes)
		}
	}
}

// fakeSysfs has a disk sdb with a partition sdb1, and an NVMe namespace.
func fakeSysfs(t *testing.T) (sysfs, func(name, text string)) {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(root, to), name); err != nil {
			t.Fatal(err)
		}
	}
	write("devices/sdb/queue/rotational", "1")
	write("devices/sdb/stat", strings.Repeat("7 ", 17))
	write("devices/sdb/device/state", "running")
	write("devices/sdb/sdb1/partition", "1")
	write("devices/sdb/sdb1/stat", "10 0 20 1 30 0 40 1 2 500 9 0 0 0 0 0 0")
	write("devices/sdb/sdb1/inflight", "       2        3")
	link("devices/sdb", "dev/block/8:16")
	link("devices/sdb/sdb1", "dev/block/8:17")
	link("devices/sdb", "class/block/sdb")
	link("devices/sdb/sdb1", "class/block/sdb1")
	write("devices/nvme0/nvme0n1/queue/rotational", "0")
	write("devices/nvme0/state", "live")
	write("devices/nvme0/hwmon3/temp1_alarm", "0")
	link("devices/nvme0", "devices/nvme0/nvme0n1/device")
	link("devices/nvme0/nvme0n1", "dev/block/259:0")
	link("devices/nvme0/nvme0n1", "class/block/nvme0n1")
	return sysfs(root), write
}

func TestHardware(t *testing.T) {
	sys, _ := fakeSysfs(t)
	for n, want := range map[number]hardware{
		{8, 16}:  {number{8, 16}, "sdb", "sdb", "hdd"},
		{8, 17}:  {number{8, 17}, "sdb1", "sdb", "hdd"},
		{259, 0}: {number{259, 0}, "nvme0n1", "nvme0n1", "ssd"},
	} {
		if got, ok := sys.hardware(n); !ok || got != want {
			t.Errorf("%v: got %+v, want %+v", n, got, want)
		}
	}
	if got, ok := sys.hardware(number{0, 53}); ok {
		t.Errorf("no device: got %+v", got)
	}
	want := counters{Reads: 10, ReadBytes: 20 * 512, Writes: 30, WrittenBytes: 40 * 512, BusyMillis: 500, Reading: 2, Writing: 3}
	if got, ok := sys.counters(number{8, 17}); !ok || got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, ok := sys.counters(number{259, 0}); ok {
		t.Error("a device without counters has some")
	}
}

func TestWarningsOfDevices(t *testing.T) {
	sys, write := fakeSysfs(t)
	for _, whole := range []string{"sdb", "nvme0n1", "none"} {
		if got := sys.warning(hardware{whole: whole}); got != good {
			t.Errorf("%s: got %v", whole, got)
		}
	}
	for _, row := range []struct {
		file, text, whole string
		want              Health
	}{
		{"devices/sdb/device/state", "offline", "sdb", Critical},
		{"devices/nvme0/hwmon3/temp1_alarm", "1", "nvme0n1", Slow},
		{"devices/nvme0/state", "dead", "nvme0n1", Critical},
		{"class/block/mmcblk0/device/pre_eol_info", "0x03", "mmcblk0", Critical},
		{"class/block/mmcblk0/device/pre_eol_info", "0x02", "mmcblk0", Healthy},
	} {
		write(row.file, row.text)
		if got := sys.warning(hardware{whole: row.whole}); got.Health != row.want {
			t.Errorf("%s is %s: got %v, want %v", row.file, row.text, got, row.want)
		}
	}
}

func FuzzCounters(f *testing.F) {
	f.Add("1 2 3 4 5 6 7 8 9 10 11")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if all, ok := integers(text, 11); ok && len(all) < 11 {
			t.Errorf("%q: got %d", text, len(all))
		}
	})
}

func TestQuotaLeavesLess(t *testing.T) {
	disk := extent{Total: 1000 << 10, Free: 500 << 10, Inodes: 1000, InodesFree: 500}
	for name, row := range map[string]struct {
		quota quota
		want  extent
	}{
		"none":         {quota{}, disk},
		"hard":         {quota{blockHard: 100, blockUsed: 40 << 10}, extent{100 << 10, 60 << 10, 1000, 500}},
		"soft is less": {quota{blockSoft: 50, blockHard: 100, blockUsed: 40 << 10}, extent{50 << 10, 10 << 10, 1000, 500}},
		"exceeded":     {quota{blockSoft: 50, blockHard: 100, blockUsed: 60 << 10}, extent{50 << 10, 0, 1000, 500}},
		"inodes":       {quota{inodeHard: 10, inodeUsed: 7}, extent{1000 << 10, 500 << 10, 10, 3}},
		"enormous":     {quota{blockHard: 1 << 63, inodeHard: 1 << 63}, extent{1000 << 10, 500 << 10, 1 << 50, 500}},
	} {
		if got := disk.within(row.quota.extent()); got != row.want {
			t.Errorf("%s: got %+v, want %+v", name, got, row.want)
		}
	}
}
