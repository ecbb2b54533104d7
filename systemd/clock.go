package systemd

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ClockSynced tells whether a time server keeps the clock, whichever program talks to it. It asks the kernel, as timedated
// does for its NTPSynchronized (ntp_synced in systemd's time-util.c): below 16 s of possible error.
func ClockSynced() (bool, error) {
	var t unix.Timex // zero modes: nothing is set
	if _, err := unix.Adjtimex(&t); err != nil {
		return false, fmt.Errorf("ask the kernel about its clock: %w", err)
	}
	return t.Maxerror < 16_000_000, nil
}
