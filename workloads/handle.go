package workloads

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/await"
)

// handle holds one process. Unlike a process number it never comes to mean another process (pidfd_open(2), Linux 5.3).
type handle struct{ file *os.File }

func openHandle(pid int) (*handle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, errGone
	}
	if err != nil {
		return nil, fmt.Errorf("hold process %d: %w", pid, os.NewSyscallError("pidfd_open", err))
	}
	// With a descriptor that does not block, Go waits without giving the wait a thread.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("hold process %d: %w", pid, err), unix.Close(fd))
	}
	return &handle{os.NewFile(uintptr(fd), "pidfd")}, nil
}

func (h *handle) close() error { return h.file.Close() }

// deathOf returns a channel that is closed when a child has ended. The child is not reaped by that: until it is, its number,
// which is also its group's, cannot come to mean another process.
func deathOf(pid int) <-chan struct{} {
	return await.Beside(func() {
		for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
	})
}

// signal sends a signal to the process, or returns errGone.
func (h *handle) signal(s syscall.Signal) error {
	raw, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), s, nil, 0) }); err != nil {
		return err
	}
	if errors.Is(sent, unix.ESRCH) {
		return errGone
	}
	return os.NewSyscallError("pidfd_send_signal", sent)
}

// wait returns nil once the process has ended, or the context's error. It works for any process, not only for a child, and
// leaves a child for its parent to reap.
func (h *handle) wait(ctx context.Context) error {
	raw, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	if err := h.file.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cut)
		h.file.SetReadDeadline(time.Unix(1, 0)) // long past: ends the wait
	})
	defer func() {
		if !stop() {
			<-cut // or it would cut the next wait short
		}
	}()
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 && err == nil
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ctx.Err()
	}
	return err
}
