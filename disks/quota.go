package disks

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// quota is the kernel's struct if_dqblk (linux/quota.h).
type quota struct {
	blockHard, blockSoft, blockUsed uint64 // limits in units of 1 KiB, the use in bytes
	inodeHard, inodeSoft, inodeUsed uint64
	blockTime, inodeTime            uint64
	valid                           uint32
	_                               uint32
}

const (
	getUserQuota   = 0x800007 << 8 // QCMD(Q_GETQUOTA, USRQUOTA)
	quotaBlockSize = 1024
)

// userQuota returns what a user may have on the file system at dir. Root has no such limit, and a project's quota shows in
// the file system's own size already.
func userQuota(dir string, uid int) (extent, bool) {
	if uid == 0 {
		return extent{}, false
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return extent{}, false
	}
	defer unix.Close(fd)
	var q quota
	if err := quotactl(fd, getUserQuota, uid, &q); err != nil { // ESRCH: none is in force here; ENOSYS: a kernel before 5.14
		return extent{}, false
	}
	return q.extent(), true
}

// quotactl names the file system by an open file: its device may have no name here.
func quotactl(fd int, command uintptr, id int, q *quota) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), command, uintptr(id), uintptr(unsafe.Pointer(q)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// extent returns what a quota leaves. The soft limit counts: beyond it, writes fail once the grace period is over.
func (q quota) extent() extent {
	var e extent
	if limit := limitOf(q.blockSoft, q.blockHard); limit > 0 {
		e.Total = limit * quotaBlockSize
		e.Free = max(0, e.Total-int64(q.blockUsed))
	}
	if limit := limitOf(q.inodeSoft, q.inodeHard); limit > 0 {
		e.Inodes = limit
		e.InodesFree = max(0, limit-int64(q.inodeUsed))
	}
	return e
}

// limitOf returns the lower of two limits; 0 is no limit.
func limitOf(soft, hard uint64) int64 {
	const most = 1 << 50 // so that the bytes fit
	if soft == 0 || hard != 0 && hard < soft {
		soft = hard
	}
	return int64(min(soft, most))
}
