package workloads

import "context"

// troubled is the key under which a context has whom to tell what stands in the way.
type troubled struct{}

// WithTrouble has an Action that tries again by itself say each time what stood in the way: until its time is up nobody would know that
// it is not told. What is given must return at once.
func WithTrouble(ctx context.Context, say func(error)) context.Context {
	return context.WithValue(ctx, troubled{}, say)
}

// Trouble says why an Action has not told yet what it will try to tell again, to who began it and wants to know.
func Trouble(ctx context.Context, err error) {
	if say, ok := ctx.Value(troubled{}).(func(error)); ok && ctx.Err() == nil {
		say(err)
	}
}

// Newest passes on what comes last, and what came before and was not taken is forgotten: who says it never waits for who takes it.
func Newest(to chan error) func(error) {
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
