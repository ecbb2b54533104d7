package manifest

import (
	"bufio"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// hungDisk takes nothing until it answers again.
type hungDisk struct {
	io.Writer
	hangs   func() // told that it does
	answers chan struct{}
}

func (h hungDisk) Write(p []byte) (int, error) {
	h.hangs()
	<-h.answers
	return h.Writer.Write(p)
}

// A heartbeat and systemd's watchdog ask how far the drain is. Neither waits while the disk of the account hangs.
func TestProgressDoesNotWaitForTheDiskOfTheAccount(t *testing.T) {
	l, err := Open(t.TempDir(), nil, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	hangs := make(chan struct{})
	disk := hungDisk{l.files[Moved].f, sync.OnceFunc(func() { close(hangs) }), make(chan struct{})}
	l.files[Moved].w = bufio.NewWriter(disk)
	blocks := slices.Values([]*inventory.Block{{ID: "cache/-/x", Members: []inventory.Member{{Name: "x", Bytes: 3, ModTime: time.Now()}}}})
	moving := await.Beside(func() { l.AddMoved("node-b", blocks) })
	<-hangs
	asking := await.Beside(func() {
		if got := l.Counts().Moved; got != (inventory.Count{Blocks: 1, Bytes: 3}) {
			t.Errorf("got %+v, want the block that a peer has", got)
		}
	})
	select {
	case <-asking:
	case <-time.After(10 * time.Second):
		t.Error("whoever asks how far the drain is waits for the disk")
	}
	close(disk.answers)
	<-moving
	<-asking
	if sum, err := l.Close(); err != nil || sum.Moved != (inventory.Count{Blocks: 1, Bytes: 3}) {
		t.Errorf("got %+v, %v", sum, err)
	}
}
