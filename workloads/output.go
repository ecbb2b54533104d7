package workloads

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A program prints into a file that it holds open itself, so that no process has to read the output. The supervisor limits
// the file's size while the program runs: a limit of the kernel (setrlimit(2)) would also apply to the files that the
// program works on.
const (
	mostOutput = 1 << 20  // more than this is cut
	keptOutput = 64 << 10 // to its last part
	shownLines = 5        // of it, in an error
	shownBytes = 2 << 10  // and no more than this
)

func (r run) openOutput() (*os.File, error) {
	// A file opened for appending can be cut while it is written to.
	return os.OpenFile(r.path(outputFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
}

// cutOutput frees all but the end of the output, if that is much. The file keeps its length, with a hole before the end, so
// that what is printed at the same moment, perhaps the last word, is not lost. A file that cannot be cut goes on growing:
// there is nobody to report it to, and the program matters more.
func (r run) cutOutput() {
	f, err := os.OpenFile(r.path(outputFile), os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	cut(f)
}

func cut(f *os.File) {
	info, err := f.Stat()
	if err != nil || onDisk(info) <= mostOutput {
		return
	}
	cut := info.Size() - keptOutput
	if unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, cut) == nil {
		_, _ = f.WriteAt(fmt.Appendf(nil, "[%d bytes were cut here]\n", cut), 0)
	}
}

// aloneWith reports whether nobody else has a file open, or nobody can tell: the kernel gives a lease for writing only to the one that has it
// (F_SETLEASE in fcntl(2)).
func aloneWith(f *os.File) bool {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	if err == nil {
		_, _ = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	}
	return !errors.Is(err, unix.EAGAIN)
}

// onDisk is how much room a file takes: stat(2) counts in 512 bytes.
func onDisk(info os.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}

// tail is the last part of what was printed.
func (r run) tail(most int64) ([]byte, error) {
	f, err := os.Open(r.path(outputFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-most), most))
}

// lastLines is the end of what was printed, on one line.
func (r run) lastLines() string {
	end, err := r.tail(shownBytes)
	if err != nil {
		return ""
	}
	lines := strings.FieldsFunc(string(end), func(c rune) bool { return c == '\n' || c == '\r' })
	for i, line := range lines {
		lines[i] = printable(strings.ToValidUTF8(strings.ReplaceAll(line, "\t", " "), "?"))
	}
	return strings.Join(lines[max(0, len(lines)-shownLines):], "; ")
}
