package enginetest

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is what this process has used, system calls included.
func CPUTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
