package main

import (
	"iter"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// gcPercent is half of Go's default: a daemon's live heap is about a megabyte, which Go would let grow to four before it
	// collects. Measured: 2 MiB less at rest. The environment's GOGC goes first.
	gcPercent = 50
	// roomyPercent is Go's default, for a live heap of more than smallHeap. A receiver has that many bytes while many thousand small
	// blocks are on their way; collections, twice as many at half the percent, were an eighth of what each block costs it. A daemon at
	// rest, or with larger blocks on their way, stays below smallHeap (measured; docs/design/measured.md).
	roomyPercent = 100
	smallHeap    = 7 << 20
)

// thrifty keeps a daemon's memory small: it runs on every machine beside the work that the machine is for.
func thrifty() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
		followGC(gcPercent)
	}
	pageByPage()
	giveBack()
}

// followGC sets the GC percent after each collection by the live heap that it left: a cleanup runs when its garbage is collected.
func followGC(percent int) {
	type garbage struct{ _ *garbage }
	runtime.AddCleanup(new(garbage), func(percent int) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		next := gcPercent
		if live[0].Value.Uint64() > smallHeap {
			next = roomyPercent
		}
		if next != percent {
			debug.SetGCPercent(next)
		}
		followGC(next)
	}, percent)
}

// settleAfter is how long a daemon's start takes: by then it is registered, and has asked each source of notices.
const settleAfter = 15 * time.Second

// settle gives back the pages of the binary that only the daemon's start needed: now, in case a drain begins at once, and again
// after settleAfter.
func settle() {
	giveBack()
	time.AfterFunc(settleAfter, giveBack)
}

// From linux/userfaultfd.h.
const (
	uffdUserModeOnly = 0x1        // UFFD_USER_MODE_ONLY, which needs no privilege
	uffdVersion      = 0xaa       // UFFD_API
	uffdAPI          = 0xc018aa3f // UFFDIO_API
	uffdRegister     = 0xc020aa00 // UFFDIO_REGISTER
	uffdAsync        = 1 << 15    // UFFD_FEATURE_WP_ASYNC
	uffdWrites       = 1 << 1     // UFFDIO_REGISTER_MODE_WP
)

// pageByPage has the kernel map only those pages of the binary that are touched. By default the kernel maps the sixteen around each
// (fault-around), and what a drain touches, 5 MiB of functions all over the binary and of the tables by which the garbage collector finds
// their frames, counts as 17 MiB of resident memory. The kernel does no fault-around in memory that a userfaultfd watches for writes
// (should_fault_around in its mm/memory.c). Nothing writes to these pages and none is write-protected, so there are no events to read;
// the descriptor stays open because closing it ends the watch. A kernel before 6.7 or a seccomp filter may refuse: then the process only
// counts as larger, which is not worth a log line.
func pageByPage() bool {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK|uffdUserModeOnly, 0, 0)
	if errno != 0 {
		return false
	}
	hello := struct{ api, features, ioctls uint64 }{api: uffdVersion, features: uffdAsync}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdAPI, uintptr(unsafe.Pointer(&hello))); errno != 0 {
		_ = unix.Close(int(fd))
		return false
	}
	for begin, size := range ownPages() {
		watch := struct{ begin, size, mode, ioctls uint64 }{begin: uint64(begin), size: uint64(size), mode: uffdWrites}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, uffdRegister, uintptr(unsafe.Pointer(&watch)))
	}
	return true
}

// giveBack lets the kernel drop the binary's own pages from this process: most that the start read in are not used again. They are clean
// copies of a file and come back when they are touched. A kernel that refuses does no harm, so errors are ignored.
func giveBack() {
	for begin, size := range ownPages() {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, begin, size, unix.MADV_DONTNEED)
	}
}

// ownPages yields the read-only mappings of the binary in this process: its code and its constants.
func ownPages() iter.Seq2[uintptr, uintptr] {
	return func(yield func(begin, size uintptr) bool) {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			return
		}
		self, err := os.Readlink("/proc/self/exe")
		if err != nil {
			return
		}
		for line := range strings.Lines(string(maps)) {
			// 00400000-01234000 r-xp 00000000 fe:00 123 /usr/bin/lifeboat
			fields := strings.Fields(line)
			if len(fields) != 6 || fields[5] != self || strings.Contains(fields[1], "w") {
				continue
			}
			from, to, _ := strings.Cut(fields[0], "-")
			begin, err1 := strconv.ParseUint(from, 16, 64)
			end, err2 := strconv.ParseUint(to, 16, 64)
			if err1 == nil && err2 == nil && end > begin && !yield(uintptr(begin), uintptr(end-begin)) {
				return
			}
		}
	}
}
