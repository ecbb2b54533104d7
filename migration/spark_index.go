package migration

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// readIndex reads a Spark index file of that many bytes and returns the offset at which the last partition ends, which
// must be the size of the data file. An index is a list of big-endian 64-bit offsets, one more than there are partitions,
// that begins with 0 and never falls (IndexShuffleBlockResolver).
func readIndex(r io.Reader, bytes int64) (end int64, err error) {
	if bytes < 8 || bytes%8 != 0 {
		return 0, fmt.Errorf("index of %d bytes is not a list of 8-byte offsets", bytes)
	}
	br := bufio.NewReaderSize(r, int(min(bytes, 64<<10)))
	var b [8]byte
	for i := range bytes / 8 {
		if _, err := io.ReadFull(br, b[:]); err != nil {
			return 0, fmt.Errorf("index cut short at offset %d of %d: %w", i, bytes/8, err)
		}
		offset := int64(binary.BigEndian.Uint64(b[:]))
		switch {
		case i == 0 && offset != 0:
			return 0, fmt.Errorf("index begins with %d, want 0", offset)
		case offset < end:
			return 0, fmt.Errorf("index falls from %d to %d at offset %d", end, offset, i)
		}
		end = offset
	}
	return end, nil
}
