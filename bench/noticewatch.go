package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// journalName is the file that holds an agent's open incident.
const journalName = "incident.json"

// journalWatch sees an agent's journal change, through inotify(7): that costs the agent nothing, and takes microseconds.
type journalWatch struct {
	events *os.File
	unread []event
}

// event is a change in a directory: of the entry with that name, or, without a name, of the directory itself.
type event struct {
	mask uint32
	name string
}

func watchJournal(dir string) (*journalWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	w := &journalWatch{events: os.NewFile(uintptr(fd), "inotify")}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_CLOSE_NOWRITE|unix.IN_ONLYDIR); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", dir, err), w.close())
	}
	return w, nil
}

// durable waits until a journal is on the disk, and returns when it was. Package durable renames the synced file into its
// place, and closes the directory once the directory is synced too: these are the two events.
func (w *journalWatch) durable(ctx context.Context) (time.Time, error) {
	if _, err := w.next(ctx, "a journal is in place", event{unix.IN_MOVED_TO, journalName}); err != nil {
		return time.Time{}, err
	}
	return w.next(ctx, "its directory is synced", event{unix.IN_CLOSE_NOWRITE, ""})
}

// gone waits until the incident is over and its journal is removed.
func (w *journalWatch) gone(ctx context.Context) error {
	_, err := w.next(ctx, "the journal is gone", event{unix.IN_DELETE, journalName})
	return err
}

// patience is far longer than any change of a journal may take.
const patience = 15 * time.Second

// next skips events until the wanted one, and returns when that was read.
func (w *journalWatch) next(ctx context.Context, what string, wanted event) (time.Time, error) {
	if err := w.events.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return time.Time{}, err
	}
	defer context.AfterFunc(ctx, func() { w.events.SetReadDeadline(time.Unix(1, 0)) })()
	buf := make([]byte, 64<<10)
	for {
		for i, e := range w.unread {
			if e.mask&wanted.mask != 0 && e.name == wanted.name {
				w.unread = w.unread[i+1:]
				return time.Now(), nil
			}
		}
		n, err := w.events.Read(buf)
		if err == nil {
			w.unread, err = parseEvents(buf[:n])
		}
		if err != nil {
			return time.Time{}, errors.Join(ctx.Err(), fmt.Errorf("wait until %s: %w", what, err))
		}
	}
}

// parseEvents reads inotify's events. Each has a header of four words; the last is the length of the name that follows,
// which is padded with zeros.
func parseEvents(b []byte) (events []event, err error) {
	for len(b) > 0 {
		if len(b) < unix.SizeofInotifyEvent {
			return nil, fmt.Errorf("inotify gave %d bytes, too few for an event", len(b))
		}
		mask, length := binary.NativeEndian.Uint32(b[4:]), uint64(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if length > uint64(len(b)) {
			return nil, fmt.Errorf("inotify gave %d bytes of a name of %d", len(b), length)
		}
		if mask&unix.IN_Q_OVERFLOW != 0 {
			return nil, errors.New("inotify lost events")
		}
		name, _, _ := bytes.Cut(b[:length], []byte{0})
		events = append(events, event{mask, string(name)})
		b = b[length:]
	}
	return events, nil
}

func (w *journalWatch) close() error { return w.events.Close() }
