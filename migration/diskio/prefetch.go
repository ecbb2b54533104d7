package diskio

import "golang.org/x/sys/unix"

// A read that memory cannot serve waits for the disk: 0.1 ms where the disk is the machine's own, a millisecond where it is behind
// a network. A reader that waits for one block at a time gets a fraction of what such disks do side by side. So before it waits, it
// asks the disk for what it will read next: the rest of the lane's batch, or what follows in a large file. The kernel puts that
// into the page cache, and nobody waits for it. Where memory has everything, all this costs is one flag of the call that reads.

const (
	// Window is how much of a large file, or of a segment, a disk is asked for ahead: what two lanes send at 2 GiB/s in a millisecond.
	Window = 1 << 20
	// fetchStep is how much one call asks for. The kernel ignores what goes beyond the device's read-ahead, which is 128 KiB if nobody
	// has set it (linux/mm.h, VM_READAHEAD_PAGES).
	fetchStep = 128 << 10
)

// Prefetch has a disk begin to read a file into memory, from one place to another, and returns how far it was asked.
func Prefetch(fd int, at, end int64) (asked int64) {
	for ; at < end; at += fetchStep {
		unix.Fadvise(fd, at, fetchStep, unix.FADV_WILLNEED)
	}
	return at
}

// PrefetchMissing has a disk begin to read so many bytes of a file from an offset on, unless memory has the first of them, and reports
// whether it did. 0 bytes: nothing.
func PrefetchMissing(fd int, at, bytes int64) bool {
	if bytes == 0 {
		return false
	}
	first := [][]byte{make([]byte, 1)}
	if _, err := Retry(func() (int, error) { return unix.Preadv2(fd, first, at, unix.RWF_NOWAIT) }); err != unix.EAGAIN {
		return false
	}
	Prefetch(fd, at, at+bytes)
	return true
}

// Retry makes a call that a signal may interrupt.
func Retry(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); err != unix.EINTR {
			return n, err
		}
	}
}
