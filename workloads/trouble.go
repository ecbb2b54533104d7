package workloads

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// troubled is the context key of the function that Trouble calls.
type troubled struct{}

// Trouble reports, to the function in ctx if there is one, why an Action has not told its word yet, which it will try again.
func Trouble(ctx context.Context, err error) {
	if say, ok := ctx.Value(troubled{}).(func(error)); ok && ctx.Err() == nil {
		say(err)
	}
}

// hearTrouble returns a context in which an Action that retries by itself reports each failure to hear: otherwise nobody
// would know of them until its time is up. hear may take long, as when a hanging disk keeps the failure from being noted,
// and must not delay the telling. So a goroutine in hearing calls it, until ctx ends, with the newest failure.
func hearTrouble(ctx context.Context, hearing *sync.WaitGroup, hear func(error)) context.Context {
	trouble := make(chan error, 1)
	hearing.Go(func() {
		for {
			select {
			case err := <-trouble:
				hear(err)
			case <-ctx.Done():
				return
			}
		}
	})
	return context.WithValue(ctx, troubled{}, newest(trouble))
}

// newest returns a function that never blocks: it replaces an error that was not taken yet by the newer one.
func newest(to chan error) func(error) {
	return func(err error) {
		for {
			select {
			case to <- err:
				return
			default:
			}
			select {
			case <-to:
			default:
			}
		}
	}
}

// GivenUp is the error for a word that was told in vain until ctx ended.
func GivenUp(ctx context.Context, tries int, last error) error {
	times := fmt.Sprintf("after %d tries", tries)
	if tries == 1 {
		times = "at the first try"
	}
	why := whyOver(ctx)
	if errors.Is(last, context.Cause(ctx)) { // all the time went into waiting for an answer
		return fmt.Errorf("given up %s, as %w, and nobody answered", times, why)
	}
	return fmt.Errorf("given up %s, as %w; the last: %w", times, why, last)
}

// whyOver says why ctx has ended, in words for people who read what became of a word; Go's own are for programmers.
func whyOver(ctx context.Context) error {
	switch why := context.Cause(ctx); why {
	case context.DeadlineExceeded:
		return over{"the time is up", why}
	case context.Canceled:
		return over{"whoever told it was stopped", why}
	default:
		return why
	}
}

type over struct {
	text string
	why  error
}

func (o over) Error() string { return o.text }
func (o over) Unwrap() error { return o.why }
