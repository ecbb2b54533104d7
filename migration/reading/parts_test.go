package reading

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A reader of several ranges goes away while one of them is read from the disk, which http.ServeContent does not wait for. The content
// is not closed under that read, which would let others have its place, and nothing is noted any more by it.
func TestPartsAreReadNoMoreOnceTheReaderIsGone(t *testing.T) {
	f := &slowFile{reads: make(chan struct{}), on: make(chan struct{})}
	req := httptest.NewRequest(http.MethodGet, "/blocks/cache/-/x", nil)
	req.Header.Set("Range", "bytes=0-9,20-29")
	(&Reader{Log: slog.New(slog.DiscardHandler)}).serve(goesAway{httptest.NewRecorder(), f}, req, "cache/-/x", &content{ReadSeekCloser: f, etag: `"x"`})
	if !f.closed {
		t.Error("the file is open for ever")
	}
	if f.under {
		t.Error("the file was closed while it was read")
	}
}

// slowFile is a file on a disk that takes its time.
type slowFile struct {
	reads, on                    chan struct{} // a read begins; it may go on
	began, closed, inside, under bool
}

func (f *slowFile) Read(p []byte) (int, error) {
	f.inside = true
	if !f.began {
		f.began = true
		close(f.reads)
		<-f.on
	}
	f.inside = false
	return len(p), nil
}

func (f *slowFile) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		offset += 1000
	}
	return offset, nil
}

func (f *slowFile) Close() error {
	f.closed, f.under = true, f.inside
	return nil
}

// goesAway is a reader that goes away while the file is read.
type goesAway struct {
	http.ResponseWriter
	f *slowFile
}

func (w goesAway) Write([]byte) (int, error) {
	<-w.f.reads
	close(w.f.on)
	return 0, errors.New("gone")
}
