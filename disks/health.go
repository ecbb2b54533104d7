package disks

import "fmt"

// Health is what a disk may be trusted with, from best to worst: a worse one hides a better one. The zero value is
// Unknown: a disk that has not answered yet is not well.
type Health int

const (
	Unknown          Health = iota // has not answered yet
	Healthy                        // takes blocks and gives them back
	Slow                           // does so, late
	HighUsage                      // has no room or no inode to spare
	ReadOnly                       // takes nothing, may still be read
	ReadWriteFailure               // refused a probe, or gave back other bytes than it was given
	IOHang                         // a probe does not come back
	Critical                       // fails too often, cannot tell its own size, or its device says that it is dying
	Missing                        // nothing is there, or something else than there was
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

// Writable says whether new blocks may be put there.
func (h Health) Writable() bool { return h == Healthy || h == Slow }

// Dying says that what lies there should be carried elsewhere while it can still be read. A disk that hangs or is gone
// cannot be read; a full one is well.
func (h Health) Dying() bool { return h == ReadOnly || h == ReadWriteFailure || h == Critical }

// broken says that a finding is an error of the disk, of the kind that too many of make it Critical.
func (h Health) broken() bool { return h == ReadWriteFailure || h == IOHang }

// finding is what one look at a disk says about it.
type finding struct {
	Health Health
	Why    string // empty when healthy
}
