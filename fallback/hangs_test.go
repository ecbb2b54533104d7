package fallback

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A share that hangs makes the first calls wait, and takes a thread of the process for each. Later calls are told at once.
func TestShareThatHangsIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, heal, begun := NewDirectory(t.TempDir()), make(chan struct{}), 0
		defer synctest.Wait()
		ask := func(ctx context.Context) error {
			_, err := do(ctx, d, "read from", func(c *call, _ *os.Root) (struct{}, error) {
				begun++
				return struct{}{}, c.in(func() error { <-heal; return nil })
			})
			return err
		}
		began := time.Now()
		if err := ask(t.Context()); !errors.Is(err, errSilent) || time.Since(began) < silence {
			t.Fatalf("got %v after %v", err, time.Since(began))
		}
		began = time.Now()
		if err := ask(t.Context()); !errors.Is(err, errSilent) || time.Since(began) != 0 {
			t.Errorf("got %v after %v, want that it hangs, at once", err, time.Since(began))
		}
		for range 3600 {
			_ = ask(t.Context())
			time.Sleep(time.Second)
		}
		if begun > 66 {
			t.Errorf("%d calls hang after an hour, want one a minute at most", begun)
		}
		close(heal)
		synctest.Wait()
		if err := ask(t.Context()); err != nil {
			t.Errorf("got %v of a share that is well again", err)
		}
	})
}

// Readers that go before the share counts as hung leave threads behind as well.
func TestShareThatHangsForReadersWhoGoIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, heal, begun := NewDirectory(t.TempDir()), make(chan struct{}), 0
		defer synctest.Wait()
		defer close(heal)
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = do(ctx, d, "read from", func(c *call, _ *os.Root) (struct{}, error) {
				begun++
				return struct{}{}, c.in(func() error { <-heal; return nil })
			})
			cancel()
		}
		if begun > 15 {
			t.Errorf("%d of 100 calls hang, want those of the first seconds", begun)
		}
	})
}

// On a share that takes 4 MB/s of eight contents at once, no sync takes nearly as long as it takes for a share to count as hung. On a quick
// share each sync writes much.
func TestSyncsAreOfWhatAShareTakes(t *testing.T) {
	for rate, want := range map[int64]int64{512 << 10: 512 << 10, 1 << 30: syncBytes} {
		bytes := int64(leastSync)
		for range 20 {
			took := time.Duration(bytes) * time.Second / time.Duration(rate)
			if took > silence/3 {
				t.Errorf("at %d bytes per second a sync takes %v", rate, took)
			}
			bytes = nextSync(bytes, took)
		}
		if bytes > 2*want || bytes < want {
			t.Errorf("at %d bytes per second a sync is of %d bytes in the end, want some %d", rate, bytes, want)
		}
	}
}
