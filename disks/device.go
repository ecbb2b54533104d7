package disks

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sysfs is the kernel's tree of devices, in which a device is found by its number. Only warning may make the kernel ask
// the device itself, and so may hang with it.
type sysfs string

func (s sysfs) dir(n number) string { return filepath.Join(string(s), "dev/block", n.String()) }

// text returns the text of a kernel's file; "": there is none.
func text(path ...string) string {
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// hardware is what stands behind a file system.
type hardware struct {
	number number
	name   string // sda1
	whole  string // sda: the disk that a partition lies on
	kind   string // hdd, ssd, or empty: unknown. On a virtual machine it is what the hypervisor says
}

func (s sysfs) hardware(n number) (hardware, bool) {
	dir, err := filepath.EvalSymlinks(s.dir(n))
	if err != nil {
		return hardware{}, false
	}
	h := hardware{number: n, name: filepath.Base(dir), whole: filepath.Base(dir)}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		dir = filepath.Dir(dir)
		h.whole = filepath.Base(dir)
	}
	switch text(dir, "queue/rotational") {
	case "0":
		h.kind = "ssd"
	case "1":
		h.kind = "hdd"
	}
	return h, true
}

// blockOf returns the number of the block device behind a mount. btrfs gives each file system a number of its own, and
// names the device as the mount's source.
func blockOf(m mount) number {
	if !m.dev.anonymous() || !strings.HasPrefix(m.source, "/dev/") {
		return m.dev
	}
	var st unix.Stat_t
	if err := unix.Stat(m.source, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return m.dev
	}
	return numberOf(st.Rdev)
}

// counters are what a device has done since it appeared (the kernel's Documentation/block/stat.rst).
type counters struct {
	Reads, ReadBytes     int64
	Writes, WrittenBytes int64
	BusyMillis           int64
	Reading, Writing     int64 // requests under way
}

// sector is the unit of the counters, whatever the device's own sector is.
const sector = 512

func (s sysfs) counters(n number) (counters, bool) {
	if n.anonymous() {
		return counters{}, false
	}
	stat, ok := integers(text(s.dir(n), "stat"), 11)
	if !ok {
		return counters{}, false
	}
	c := counters{
		Reads: stat[0], ReadBytes: stat[2] * sector,
		Writes: stat[4], WrittenBytes: stat[6] * sector,
		BusyMillis: stat[9],
	}
	if flying, ok := integers(text(s.dir(n), "inflight"), 2); ok {
		c.Reading, c.Writing = flying[0], flying[1]
	}
	return c, true
}

func integers(text string, atLeast int) ([]int64, bool) {
	fields := strings.Fields(text)
	if len(fields) < atLeast {
		return nil, false
	}
	all := make([]int64, len(fields))
	for i, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return nil, false
		}
		all[i] = n
	}
	return all, true
}

// stalled reports whether requests wait and none gets done: none was finished since before, some were under way then,
// and no fewer are now. Reads and writes are judged apart. The rule is Celeborn's.
func stalled(before, now counters) (reads, writes bool) {
	reads = now.Reads == before.Reads && before.Reading > 0 && now.Reading >= before.Reading
	writes = now.Writes == before.Writes && before.Writing > 0 && now.Writing >= before.Writing
	return reads, writes
}

// warning returns what a device says of its own end, as far as the kernel passes that on without a tool: SCSI's and
// NVMe's state, NVMe's temperature alarm (a bit of SMART's critical warning) and eMMC's reserve of spare blocks. Other
// SMART values need commands to the device, which are smartd's to send.
func (s sysfs) warning(h hardware) finding {
	dir := filepath.Join(string(s), "class/block", h.whole, "device")
	switch state := text(dir, "state"); state {
	case "offline", "transport-offline", "dead", "deleting", "deleting (no IO)", "cancel", "del":
		return finding{Critical, fmt.Sprintf("device %s says that it is %s", h.whole, state)}
	}
	if text(dir, "pre_eol_info") == "0x03" { // JEDEC eMMC 5.1: urgent, 90 % of the spare blocks are used
		return finding{Critical, fmt.Sprintf("device %s says that its spare blocks are nearly used up", h.whole)}
	}
	alarms, _ := filepath.Glob(filepath.Join(dir, "hwmon*/temp1_alarm")) // the pattern is good
	for _, f := range alarms {
		if text(f) == "1" {
			return finding{Slow, fmt.Sprintf("device %s warns of its temperature: it slows down to cool", h.whole)}
		}
	}
	return finding{Health: Healthy}
}
