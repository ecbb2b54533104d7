package manifest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"golang.org/x/sys/unix"
)

// A disk that hangs under one of the two accounts holds up nobody. A copy that ends late because of that changes nothing.
func TestAccountOnADiskThatHangs(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := os.WriteFile(Path(to, Moved), []byte("newer\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(Path(from, Moved), 0o600); err != nil { // opening it hangs until somebody writes
		t.Skipf("no pipe to hang on: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := Copy(ctx, from, to, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	answers, err := os.OpenFile(Path(from, Moved), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := answers.WriteString("older\n"); err != nil {
		t.Fatal(err)
	}
	if err := answers.Close(); err != nil {
		t.Fatal(err)
	}
	if err := copyAccount(ctx, to, from, 0); !errors.Is(err, context.DeadlineExceeded) { // the copy that hung has ended like this too
		t.Errorf("once it answers: got %v", err)
	}
	if is, err := os.ReadFile(Path(to, Moved)); err != nil || string(is) != "newer\n" {
		t.Errorf("it is %q (%v), want it as it was", is, err)
	}
}

// An account in memory takes no more memory than it may. Of blocks beyond that it has only the figures, and of lost blocks as many names
// as a drain's own memory has room for.
func TestAccountTakesNoMoreThanItMay(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, nil, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	const most, blocks = 64 << 10, 2000
	l.Within(diskio.Allow(most))
	for i := range blocks {
		l.AddMoved("b", slices.Values([]*inventory.Block{{ID: inventory.BlockID(fmt.Sprintf("cache/-/f-%d", i)), Members: []inventory.Member{{Name: "f", Bytes: 10}}}}))
		l.Add(Entry{ID: fmt.Sprintf("cache/-/f-%d", i), Outcome: Lost, Reason: "the deadline came first"})
	}
	sum, err := l.Close()
	if sum.Moved.Blocks != blocks || sum.Lost.Blocks != blocks || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %+v, %v: want %d of each, and to hear that not all are named", sum, err, blocks)
	}
	var bytes int64
	for _, o := range []Outcome{Moved, Lost} {
		is, err := os.Stat(Path(dir, o))
		if err != nil {
			t.Fatal(err)
		}
		bytes += is.Size()
	}
	if bytes < most/2 || bytes > most {
		t.Errorf("the account has %d bytes, want at most %d", bytes, most)
	}
	named := 0
	for e, err := range l.Entries() {
		if err != nil {
			t.Fatal(err)
		}
		if e.Outcome == Lost {
			named++
		}
	}
	if named != blocks {
		t.Errorf("%d that are lost are named, want %d", named, blocks)
	}
}
