package diskio

import (
	"context"
	"time"
)

// Sleep waits so long, and is false when ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Beside does something that may hang, and returns what is closed once it is done.
func Beside(do func()) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do()
	}()
	return ended
}

// UnlessHung does what may hang, until ctx ends.
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
