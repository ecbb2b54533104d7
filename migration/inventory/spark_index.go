package inventory

import (
	"encoding/binary"
	"fmt"
	"io"
)

// ReadIndex reads a Spark index file of that many bytes and returns the offset at which the last partition ends, which
// must be the size of the data file. An index is a list of big-endian 64-bit offsets, one more than there are partitions,
// that begins with 0 and never falls (IndexShuffleBlockResolver).
func ReadIndex(r io.Reader, bytes int64) (end int64, err error) {
	if bytes < 8 || bytes%8 != 0 {
		return 0, fmt.Errorf("index of %d bytes is not a list of 8-byte offsets", bytes)
	}
	buf := make([]byte, min(bytes, 64<<10))
	for at := int64(0); at < bytes; {
		n, short := io.ReadFull(r, buf[:min(bytes-at, int64(len(buf)))])
		for i := 0; i+8 <= n; i += 8 {
			offset := int64(binary.BigEndian.Uint64(buf[i:]))
			switch nth := at/8 + int64(i/8); {
			case nth == 0 && offset != 0:
				return 0, fmt.Errorf("index begins with %d, want 0", offset)
			case offset < end:
				return 0, fmt.Errorf("index falls from %d to %d at offset %d", end, offset, nth)
			}
			end = offset
		}
		at += int64(n)
		if short != nil {
			return 0, fmt.Errorf("index cut short at offset %d of %d: %w", at/8, bytes/8, short)
		}
	}
	return end, nil
}
