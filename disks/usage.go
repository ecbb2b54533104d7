package disks

import (
	"math"

	"github.com/shirou/gopsutil/v3/disk"
)

// Space is the room on the file system that holds Path.
type Space struct {
	Path        string
	TotalBytes  int64
	UsableBytes int64 // what a writer without privileges may still take; never below 0
}

// space reads what statfs said of the file system at path.
func space(path string, u *disk.UsageStat) Space {
	s := Space{Path: path, TotalBytes: int64(min(u.Total, math.MaxInt64))}
	// Free is what is available without privileges (f_bavail), with the blocks that are kept for root already taken off.
	// A file system that root has filled beyond that line may count below zero, which arrives as an enormous number.
	if u.Free <= math.MaxInt64 {
		s.UsableBytes = min(int64(u.Free), s.TotalBytes)
	}
	// Without an inode no file can be made, whatever room is left. Some file systems (btrfs) count none at all.
	if u.InodesTotal > 0 && u.InodesFree == 0 {
		s.UsableBytes = 0
	}
	return s
}

// inodes are how many a file system has, and how many of them are free; 0: it counts none. CephFS says how many files there are, and
// that -1 can be made.
func inodes(u *disk.UsageStat) (total, free int64) {
	if u.InodesTotal > math.MaxInt64 || u.InodesFree > u.InodesTotal {
		return 0, 0
	}
	return int64(u.InodesTotal), int64(u.InodesFree)
}
