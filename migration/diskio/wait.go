package diskio

import (
	"context"

	"github.com/lifeboat/lifeboat/await"
)

// UnlessHung runs do, which may hang, and leaves it behind when ctx ends.
func UnlessHung[T any](ctx context.Context, do func() (T, error)) (T, error) {
	var said T
	var err error
	select {
	case <-await.Beside(func() { said, err = do() }):
		return said, err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
