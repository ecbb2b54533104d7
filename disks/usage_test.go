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

// A coordinator refuses the heartbeat of a node that tells of less than no inodes, and a disk that has none takes no blocks.
func TestInodesOfOddFileSystems(t *testing.T) {
	minus := int64(-1)
	for name, row := range map[string]struct {
		stat        disk.UsageStat
		total, free int64
	}{
		"plain":              {disk.UsageStat{InodesTotal: 10, InodesFree: 1}, 10, 1},
		"out of them":        {disk.UsageStat{InodesTotal: 10}, 10, 0},
		"counts none":        {disk.UsageStat{}, 0, 0},
		"CephFS":             {disk.UsageStat{InodesTotal: 12345, InodesFree: uint64(minus)}, 0, 0},
		"CephFS, empty":      {disk.UsageStat{InodesFree: uint64(minus)}, 0, 0},
		"larger than we can": {disk.UsageStat{InodesTotal: math.MaxUint64, InodesFree: math.MaxUint64}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if total, free := inodes(&row.stat); total != row.total || free != row.free {
				t.Errorf("got %d of %d free, want %d of %d", free, total, row.free, row.total)
			}
		})
	}
}
