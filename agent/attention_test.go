package agent

import (
	"errors"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/durable"
)

// hung is a disk that does not answer until it thaws.
func hung() (disk *durable.Beside, thaw func()) {
	disk = &durable.Beside{}
	answers := make(chan struct{})
	go disk.Do("what it hangs at", func() error { <-answers; return nil })
	synctest.Wait()
	return disk, func() { close(answers); synctest.Wait() }
}

// While the disk of the attention file hangs, a writer is held up for a moment, and a reader not at all. Once the disk
// answers it gets the newest state.
func TestAttentionIsKnownWhileItsDiskHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workloads.json")
	synctest.Test(t, func(t *testing.T) {
		disk, thaw := hung()
		attention, err := openAttention(path, "boot", disk)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, change := range []func(*attended){func(d *attended) { d.Stopping = true }, func(d *attended) { d.Killed = true }} {
			if _, err := attention.amend("engine", change); !errors.Is(err, durable.ErrHangs) {
				t.Errorf("got %v, want to hear that it is not on disk", err)
			}
		}
		if took := time.Since(began); took > durable.Patience {
			t.Errorf("who wrote it down waited for %s", took)
		}
		want := attended{Stopping: true, Killed: true}
		if got := attention.of("engine"); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want what was done", got)
		}
		thaw()
		if again, err := openAttention(path, "boot", disk); err != nil || !reflect.DeepEqual(again.of("engine"), want) {
			t.Errorf("after a restart: %+v, %v", again.of("engine"), err)
		}
	})
}
