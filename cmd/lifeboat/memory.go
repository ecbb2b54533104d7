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
	// looks. Measured: 2 MiB less at rest. The environment's GOGC goes first.
	gcPercent = 50
	// roomyPercent is Go's default, for a live heap of more than smallHeap: many thousand small blocks are on their way then, and
	// collections, twice as many at half the percent, were an eighth of what each of them costs its receiver. What a daemon
	// keeps at rest, and while it carries larger blocks, is less than smallHeap (measured; docs/design/measured.md).
	roomyPercent = 100
	smallHeap    = 7 << 20
)

// thrifty keeps a daemon small: it lives on every machine, beside what the machine is for.
func thrifty() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
		followGC(gcPercent)
	}
	pageByPage()
	giveBack()
}

// followGC has each collection that is to come look at what it left.
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

// settleAfter is by when a daemon has said all its first words: it is registered, and each source has been asked.
const settleAfter = 15 * time.Second

// settle gives back the pages of the binary itself that only the start of a daemon needed: at once, should its work begin at
// once, and again a little later.
func settle() {
	giveBack()
	time.AfterFunc(settleAfter, giveBack)
}

// From linux/userfaultfd.h.
const (
	uffdUserModeOnly = 0x1        // UFFD_USER_MODE_ONLY, for which nobody needs a right
	uffdVersion      = 0xaa       // UFFD_API
	uffdAPI          = 0xc018aa3f // UFFDIO_API
	uffdRegister     = 0xc020aa00 // UFFDIO_REGISTER
	uffdAsync        = 1 << 15    // UFFD_FEATURE_WP_ASYNC
	uffdWrites       = 1 << 1     // UFFDIO_REGISTER_MODE_WP
)

// pageByPage has the kernel map those pages of the binary that are touched, and no others. Without it the kernel maps the
// sixteen around each, and what a drain touches, 5 MiB of functions all over the binary and of the tables by which each
// collection of garbage finds their frames, counts as 17. The kernel leaves that out for memory that a userfaultfd watches
// for writes (should_fault_around in its mm/memory.c). Nothing writes there, and none is write-protected, so there is never
// anything to be told; the descriptor stays open, for with it the watch would end. A kernel before 6.7, or a filter of
// calls, that will not have it is no reason to say anything: the process counts as larger, that is all.
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

// giveBack lets the kernel drop the binary's own pages from this process: most of those that its start read in are not used
// again. They are clean copies of a file and come back when they are touched. A kernel that will not is no reason to say
// anything.
func giveBack() {
	for begin, size := range ownPages() {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, begin, size, unix.MADV_DONTNEED)
	}
}

// ownPages are where the parts of the binary are mapped that nobody writes to: its functions, and what is constant.
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
