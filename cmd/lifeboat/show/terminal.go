package show

import (
	"bytes"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

const (
	Width         = 100           // fits on a terminal beside other windows, and into a mail
	LeastWidth    = 60            // on a narrower terminal lines wrap
	anyWidth      = math.MaxInt32 // a file or a pipe: read by a program, or in a pager
	MinLastColumn = 24
)

// WidthOf returns how wide a line of w may be. Only a terminal has a limit.
func WidthOf(w io.Writer) int {
	if p, ok := w.(*Picture); ok {
		return p.Width
	}
	if !IsTerminal(w) {
		return anyWidth
	}
	width, _, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil || width < 1 {
		return Width
	}
	return max(width, LeastWidth)
}

// RoomFor returns how wide a list may be in a table on w, if it may take n columns on a terminal of Width.
func RoomFor(w io.Writer, n int) int { return n + max(0, WidthOf(w)-Width) }

// Picture buffers output for a terminal of the given width, to be printed at once.
type Picture struct {
	bytes.Buffer
	Width int
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// TerminalSize returns how many columns and lines w has; 0: it is no terminal.
func TerminalSize(w io.Writer) (width, height int) {
	if !IsTerminal(w) {
		return 0, 0
	}
	width, height, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24 // a VT100's size, the usual guess
	}
	return width, height
}

// Unread reports whether w is a pipe whose reader has gone.
func Unread(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd())}}, 0) // poll always reports POLLERR, which a pipe without a reader has
	return err == nil && n > 0
}
