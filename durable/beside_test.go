package durable_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/durable"
)

// Nobody waits for long for a disk that hangs. Once the disk answers it gets the errands in the order in which they came, and of a page that
// was written several times the newest.
func TestBesideADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done, late []string
		b := durable.Beside{Late: func(what string, err error) {
			if err != nil {
				what += ": " + err.Error()
			}
			late = append(late, what)
		}}
		answers := make(chan struct{})
		is := func(what string) func() error { return func() error { done = append(done, what); return nil } }
		if err := b.Do("page", is("first")); err != nil || b.Takes() != 0 {
			t.Fatalf("a disk that is well: %v, %s", err, b.Takes())
		}
		began := time.Now()
		waits := func(what string, want time.Duration, do func() error) {
			t.Helper()
			if err := b.Do(what, do); !errors.Is(err, durable.ErrHangs) {
				t.Errorf("%s: got %v", what, err)
			}
			if took := time.Since(began); took != want {
				t.Errorf("%s: it waited until %s, want %s", what, took, want)
			}
		}
		waits("page", durable.Patience, func() error { <-answers; return is("second")() })
		waits("page", durable.Patience, is("third"))
		waits("other", durable.Patience, func() error { return errors.New("it fails") })
		waits("page", durable.Patience, is("fourth"))
		if took := b.Takes(); took != durable.Patience {
			t.Errorf("it has been at it for %s", took)
		}
		close(answers)
		synctest.Wait()
		if want := []string{"first", "second", "fourth"}; !slices.Equal(done, want) {
			t.Errorf("done: %q, want %q", done, want)
		}
		if want := []string{"page", "page", "other: it fails"}; !slices.Equal(late, want) {
			t.Errorf("told late: %q, want %q", late, want)
		}
		if err := b.Do("page", is("fifth")); err != nil {
			t.Errorf("once it answers: %v", err)
		}
	})
}

// A write that is begun while the disk hangs would hold the process in the kernel.
func TestBesideBeginsNothingOnADiskThatIsKnownToHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs, begun atomic.Bool
		hangs.Store(true)
		b := durable.Beside{Known: hangs.Load}
		began := time.Now()
		if err := b.Do("page", func() error { begun.Store(true); return nil }); !errors.Is(err, durable.ErrHangs) || time.Since(began) > 0 {
			t.Errorf("got %v after %s, want to hear at once that it hangs", err, time.Since(began))
		}
		time.Sleep(time.Minute)
		if begun.Load() {
			t.Error("it was begun all the same")
		}
		hangs.Store(false)
		time.Sleep(time.Second)
		if !begun.Load() {
			t.Error("it is not written though the disk answers")
		}
	})
}
