package preemption

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Moment is one instant by two clocks: the wall clock, which people and time servers set, and the kernel's clock since boot,
// which only runs.
type Moment struct {
	Wall time.Time `json:"wall"`
	// Boot names the boot that SinceBoot counts from; empty: the kernel does not say.
	Boot string `json:"boot,omitempty"`
	// SinceBoot goes on while the machine sleeps (CLOCK_BOOTTIME of clock_gettime(2)).
	SinceBoot time.Duration `json:"since_boot,omitempty"`
}

// Now reads both clocks.
func Now() Moment {
	m := Moment{Wall: time.Now()}
	var ts unix.Timespec
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil && unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) == nil {
		m.Boot, m.SinceBoot = strings.TrimSpace(string(id)), time.Duration(ts.Nano())
	}
	return m
}

// sameBoot reports whether the machine has not booted between m and now.
func (m Moment) sameBoot(now Moment) bool { return m.Boot != "" && m.Boot == now.Boot }

// step is how far the wall clock was set, by hand or by a time server, between m and now.
//
// If the machine has booted in between, the time that passed is not known. Then the wall clock was set for certain only if
// it stands before m, and by at least that much.
func (m Moment) step(now Moment) time.Duration {
	passed := now.Wall.Sub(m.Wall)
	if m.sameBoot(now) {
		return passed - (now.SinceBoot - m.SinceBoot)
	}
	return min(passed, 0)
}
