package show

import (
	"os"
	"testing"
)

func TestPipeIsUnreadOnceItsReaderHasGone(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if Unread(w) {
		t.Error("a pipe that is read counts as unread")
	}
	r.Close()
	if !Unread(w) {
		t.Error("the reader has gone, and the pipe counts as read")
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if Unread(null) || Unread(&Picture{}) {
		t.Error("what is no pipe counts as unread")
	}
}
