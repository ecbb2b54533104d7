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
	Width         = 100           // what fits on a terminal beside other things, and into a mail
	LeastWidth    = 60            // on a terminal that is narrower lines wrap
	anyWidth      = math.MaxInt32 // what is read by no person, or by one with a pager
	MinLastColumn = 24
)

// WidthOf is how wide a line of w may be. Nothing is cut but for a terminal.
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

// RoomFor is how wide a list may be in a table on w, where it may have n columns of Width.
func RoomFor(w io.Writer, n int) int { return n + max(0, WidthOf(w)-Width) }

// Picture is what is printed later, on something so wide.
type Picture struct {
	bytes.Buffer
	Width int
}

// IsTerminal tells whether a person looks at w.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// TerminalWidth is how many columns w shows, 0 when it is no terminal.
func TerminalWidth(w io.Writer) int {
	width, _ := TerminalSize(w)
	return width
}

// TerminalSize is how many columns and lines w shows, 0 when it is no terminal.
func TerminalSize(w io.Writer) (width, height int) {
	if !IsTerminal(w) {
		return 0, 0
	}
	width, height, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24 // what a terminal that does not say has had since the VT100
	}
	return width, height
}

// Unread tells whether what is written to w would be read by nobody: it is a pipe, and its reader has gone.
func Unread(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd())}}, 0) // an error of the pipe is told unasked
	return err == nil && n > 0
}
