package workloads

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// troubled is the key under which a context has whom to tell what stands in the way.
type troubled struct{}

// Trouble says why an Action has not told yet what it will try to tell again, to who began it and wants to know.
func Trouble(ctx context.Context, err error) {
	if say, ok := ctx.Value(troubled{}).(func(error)); ok && ctx.Err() == nil {
		say(err)
	}
}

// hearTrouble has an Action that tries again by itself say each time what stood in the way: until its time is up nobody would know that
// it is not told. Whoever hears it may take long to note it: a disk that hangs keeps a word from being noted, not from being told. What
// comes last is heard, until ctx ends, by a goroutine of hearing's.
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

// newest passes on what comes last, and what came before and was not taken is forgotten: who says it never waits for who takes it.
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

// GivenUp is what is said of a word that was told in vain until ctx ended.
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

// whyOver is why ctx has ended, in words for whoever reads what became of a word: Go's own are those of programmers.
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
