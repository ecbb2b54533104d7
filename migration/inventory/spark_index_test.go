package inventory

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

func TestReadIndex(t *testing.T) {
	index := func(offsets ...uint64) (b []byte) {
		for _, o := range offsets {
			b = binary.BigEndian.AppendUint64(b, o)
		}
		return b
	}
	big := make([]uint64, 20_000)
	for i := range big {
		big[i] = uint64(i)
	}
	for name, c := range map[string]struct {
		index []byte
		size  int64
		end   int64
		fault string
	}{
		"three partitions":   {index(0, 10, 10, 30), 32, 30, ""},
		"empty output":       {index(0, 0), 16, 0, ""},
		"no partition":       {index(0), 8, 0, ""},
		"many":               {index(big...), 160_000, 19_999, ""},
		"empty file":         {nil, 0, 0, "0 bytes"},
		"not a multiple":     {index(0, 1)[:15], 15, 0, "15 bytes"},
		"first not 0":        {index(1, 2), 16, 0, "begins with 1"},
		"falling":            {index(0, 10, 9), 24, 0, "falls from 10 to 9"},
		"negative":           {index(0, 1<<63), 16, 0, "falls"},
		"cut since its stat": {index(0, 10), 24, 0, "cut short"},
	} {
		end, err := ReadIndex(bytes.NewReader(c.index), c.size)
		switch {
		case c.fault == "" && (err != nil || end != c.end):
			t.Errorf("%s: got %d, %v, want %d", name, end, err, c.end)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s: got %v, want %q", name, err, c.fault)
		}
	}
}

func FuzzReadIndex(f *testing.F) {
	f.Add(binary.BigEndian.AppendUint64(make([]byte, 8), 5), int64(16))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		end, err := ReadIndex(bytes.NewReader(b), size)
		if err == nil && (end < 0 || size > int64(len(b)) || binary.BigEndian.Uint64(b[size-8:]) != uint64(end)) {
			t.Errorf("%d bytes said to be %d: got %d", len(b), size, end)
		}
	})
}
