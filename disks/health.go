package disks

import "fmt"

// Health is what a disk may be trusted with, from best to worst: of two findings the worse one counts. The zero value
// is Unknown: a disk that has not answered yet is not well.
type Health int

const (
	Unknown          Health = iota // has not answered yet
	Healthy                        // takes blocks and gives them back
	Slow                           // does so, late
	HighUsage                      // has no room or no inode to spare
	ReadOnly                       // takes nothing, may still be read
	ReadWriteFailure               // refused a probe, or gave other bytes back than were written
	IOHang                         // a probe does not come back
	Critical                       // fails too often, cannot tell its own size, or its device says that it is dying
	Missing                        // nothing is there, or something else than before
)

var healthNames = [...]string{
	"UNKNOWN", "HEALTHY", "SLOW", "HIGH_USAGE", "READ_ONLY", "READ_WRITE_FAILURE", "IO_HANG", "CRITICAL", "MISSING",
}

func (h Health) String() string {
	if h < 0 || int(h) >= len(healthNames) {
		return fmt.Sprintf("Health(%d)", int(h))
	}
	return healthNames[h]
}

func (h Health) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

func (h *Health) UnmarshalText(text []byte) error {
	for i, name := range healthNames {
		if name == string(text) {
			*h = Health(i)
			return nil
		}
	}
	return fmt.Errorf("%q is no health of a disk", text)
}

// Writable reports whether new blocks may be put on the disk.
func (h Health) Writable() bool { return h == Healthy || h == Slow }

// Dying reports whether blocks on the disk should be carried elsewhere while they can still be read. A disk that hangs
// or is gone cannot be read; a full one is well.
func (h Health) Dying() bool { return h == ReadOnly || h == ReadWriteFailure || h == Critical }

// broken reports whether a finding is an error of the disk: too many of them make it Critical.
func (h Health) broken() bool { return h == ReadWriteFailure || h == IOHang }

// finding is what one look at a disk says about it.
type finding struct {
	Health Health
	Why    string // empty when healthy
}
