package catalog

import (
	"sync/atomic"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// resident keeps the pages of the catalog that this process has read from counting as its memory: bbolt maps the file,
// and the kernel maps sixteen pages around each one that is touched. Pages that are let go stay in the page cache, and
// are found there again in a microsecond.
type resident struct{ touched atomic.Int64 }

// residentLooks is how many records are read before the pages are let go. A quarter of it costs a microsecond more for
// each block that lands (docs/design/measured.md).
const residentLooks = 4096

// recordsOnAPage is how many records count as one look where they are read in order: some 8 to 16 lie on a page.
const recordsOnAPage = 8

// looked counts records that were read, and lets go of the pages now and then. It has to be called in a transaction,
// which keeps the mapping where it is.
func (r *resident) looked(tx *bbolt.Tx, records int) {
	if r.touched.Add(int64(records)) < residentLooks {
		return
	}
	r.touched.Store(0)
	// A kernel that refuses does no harm. What the file has beyond the mapping is not touched.
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, tx.DB().Info().Data, uintptr(tx.Size()), unix.MADV_DONTNEED)
}
