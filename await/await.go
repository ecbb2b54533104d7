// Package await holds the ways in which the other packages wait: for a time, or for a word that something has changed. It starts
// no goroutine, and everything in it may be used by several.
package await

import (
	"context"
	"time"
)

// Sleep waits for d, and returns false when ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 { // no timer for that: two that are due at once, in one bubble of synctest, crash Go 1.26's race detector
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
