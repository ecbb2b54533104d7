package diskio

import "context"

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
func UnlessHung[T any](ctx context.Context, do func() (T, error)) (T, error) {
	var said T
	var err error
	select {
	case <-Beside(func() { said, err = do() }):
		return said, err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
