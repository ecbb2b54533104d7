package diskio

import (
	"context"
	"time"
)

// Sleep waits for d, and returns false when ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Beside runs do, which may hang, on a goroutine of its own. done is closed once do has returned.
func Beside(do func()) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do()
	}()
	return ended
}

// UnlessHung runs do, which may hang, and leaves it behind when ctx ends.
func UnlessHung(ctx context.Context, do func() (bool, error)) (bool, error) {
	var is bool
	var err error
	select {
	case <-Beside(func() { is, err = do() }):
		return is, err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
