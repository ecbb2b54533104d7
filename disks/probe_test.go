package disks

import (
	"math"
	"testing"

	"github.com/shirou/gopsutil/v3/disk"
)

// A coordinator refuses the heartbeat of a node that reports a negative number of inodes, and a disk without inodes takes no
// blocks.
func TestExtentOfOddFileSystems(t *testing.T) {
	below := int64(-4096)
	minus := int64(-1)
	for name, row := range map[string]struct {
		stat disk.UsageStat
		want extent
	}{
		"plain":              {disk.UsageStat{Total: 1000, Free: 400, InodesTotal: 10, InodesFree: 1}, extent{1000, 400, 10, 1}},
		"full":               {disk.UsageStat{Total: 1000, InodesTotal: 10, InodesFree: 1}, extent{1000, 0, 10, 1}},
		"below zero":         {disk.UsageStat{Total: 1000, Free: uint64(below)}, extent{1000, 0, 0, 0}},
		"larger than we can": {disk.UsageStat{Total: math.MaxUint64, Free: math.MaxInt64}, extent{mostSize, mostSize, 0, 0}},
		"EFS":                {disk.UsageStat{Total: 1<<63 - 1<<20, Free: 1<<63 - 1<<20}, extent{mostSize, mostSize, 0, 0}},
		"more than there is": {disk.UsageStat{Total: 1000, Free: 4000}, extent{1000, 1000, 0, 0}},
		"out of inodes":      {disk.UsageStat{Total: 1000, Free: 400, InodesTotal: 10}, extent{1000, 400, 10, 0}},
		"counts no inodes":   {disk.UsageStat{Total: 1000, Free: 400}, extent{1000, 400, 0, 0}},
		"CephFS":             {disk.UsageStat{InodesTotal: 12345, InodesFree: uint64(minus)}, extent{}},
		"CephFS, empty":      {disk.UsageStat{InodesFree: uint64(minus)}, extent{}},
		"too many inodes":    {disk.UsageStat{InodesTotal: math.MaxUint64, InodesFree: math.MaxUint64}, extent{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := extentOf(&row.stat); got != row.want {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
		})
	}
}

// A node that takes blocks on many shares of such a size tells the sum of their room.
func TestSizesAddUp(t *testing.T) {
	sum := int64(0)
	for range 256 {
		sum += extentOf(&disk.UsageStat{Total: 1<<63 - 1<<20, Free: 1<<63 - 1<<20}).Free
		if sum < 0 {
			t.Fatalf("got %d", sum)
		}
	}
}
