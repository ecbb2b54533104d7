package workloads

import (
	"context"
	"time"
)

// Post sends a body once, to who takes other words than Tell's. When it was not taken, after is what the answer asks to
// wait before the next try.
func (h Webhook) Post(ctx context.Context, body []byte, key string) (after time.Duration, err error) {
	return h.try(ctx, h.client(), body, key)
}
