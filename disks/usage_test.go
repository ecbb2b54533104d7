package disks

import (
	"math"
	"testing"

	"github.com/shirou/gopsutil/v3/disk"
)

func TestSpaceOfOddFileSystems(t *testing.T) {
	below := int64(-4096)
	for name, row := range map[string]struct {
		stat          disk.UsageStat
		total, usable int64
	}{
		"plain":              {disk.UsageStat{Total: 1000, Free: 400, InodesTotal: 10, InodesFree: 1}, 1000, 400},
		"full":               {disk.UsageStat{Total: 1000, InodesTotal: 10, InodesFree: 1}, 1000, 0},
		"below zero":         {disk.UsageStat{Total: 1000, Free: uint64(below)}, 1000, 0},
		"out of inodes":      {disk.UsageStat{Total: 1000, Free: 400, InodesTotal: 10}, 1000, 0},
		"counts no inodes":   {disk.UsageStat{Total: 1000, Free: 400}, 1000, 400},
		"larger than we can": {disk.UsageStat{Total: math.MaxUint64, Free: math.MaxInt64}, math.MaxInt64, math.MaxInt64},
		"more than there is": {disk.UsageStat{Total: 1000, Free: 4000}, 1000, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := space("/d", &row.stat), (Space{"/d", row.total, row.usable}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}
