package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// DefaultStall is how long a reader of a block waits for the next byte: a holder that says nothing for longer is gone, or
// stands still.
const DefaultStall = 30 * time.Second

// Ask sends a request. The answer's body ends when a Read of it gets no byte for as long as stall. A caller may read
// slowly, or not at all for a while.
func Ask(c *http.Client, req *http.Request, stall time.Duration) (*http.Response, error) {
	ctx, end := context.WithCancelCause(req.Context())
	resp, err := c.Do(req.WithContext(ctx))
	if err != nil {
		end(nil)
		if bare, ok := errors.AsType[*url.Error](err); ok {
			err = bare.Err // callers say themselves whom they asked
		}
		return nil, err
	}
	quiet := time.AfterFunc(stall, func() { end(fmt.Errorf("no byte for %s", stall)) })
	quiet.Stop()
	resp.Body = &body{ReadCloser: resp.Body, ctx: ctx, end: end, stall: stall, quiet: quiet}
	return resp, nil
}

// body is the body of an answer that may stand still.
type body struct {
	io.ReadCloser
	ctx   context.Context
	end   context.CancelCauseFunc
	stall time.Duration
	quiet *time.Timer // runs while a Read waits for a byte
}

func (b *body) Read(p []byte) (int, error) {
	b.quiet.Reset(b.stall)
	n, err := b.ReadCloser.Read(p)
	b.quiet.Stop()
	if why := context.Cause(b.ctx); err != nil && err != io.EOF && why != nil {
		err = why
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.end(nil)
	return err
}
