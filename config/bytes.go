package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size. Files write it as "64MiB", "10GB" or a plain number of bytes.
type Bytes int64

// Both families of prefixes are of IEC 80000-13: KiB is 1024 bytes, kB is 1000. The largest comes first.
var units = []struct {
	name string
	size int64
}{
	{"PiB", 1 << 50}, {"PB", 1e15}, {"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9},
	{"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1},
}

// ParseBytes reads a whole number, with a unit or without.
func ParseBytes(s string) (Bytes, error) {
	digits, size := s, int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			digits, size = strings.TrimRight(rest, " "), u.size
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && int64(n) > math.MaxInt64/size:
		return 0, errors.New("too large")
	case strings.HasPrefix(digits, "-"):
		return 0, fmt.Errorf("%s is less than 0", digits)
	case err != nil:
		return 0, fmt.Errorf("%q is not a whole number", digits)
	}
	return Bytes(int64(n) * size), nil
}

// Rough is the size as people say it: 1.2 GiB.
func (b Bytes) Rough() string {
	if b < 1024 {
		return fmt.Sprintf("%d B", int64(b))
	}
	f, unit := float64(b)/1024, "KiB"
	for _, next := range []string{"MiB", "GiB", "TiB", "PiB"} {
		if f < 1023.5 { // from here on it would round to 1024: use the next unit
			break
		}
		f, unit = f/1024, next
	}
	if f >= 99.95 {
		return fmt.Sprintf("%.0f %s", f, unit)
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

// String writes the size in the largest unit that divides it, so that ParseBytes reads back the same.
func (b Bytes) String() string {
	for _, u := range units {
		if b != 0 && int64(b)%u.size == 0 {
			return strconv.FormatInt(int64(b)/u.size, 10) + u.name
		}
	}
	return "0B"
}
