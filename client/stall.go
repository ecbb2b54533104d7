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

// DefaultStall is how long whoever reads a block waits for its next byte: a holder that says nothing for longer is gone, or
// stands still.
const DefaultStall = 30 * time.Second

// Ask sends a request. A Read of the answer's body that gets no byte for as long as stall ends it; who reads slowly, or not
// at all for a while, may do so.
func Ask(c *http.Client, req *http.Request, stall time.Duration) (*http.Response, error) {
	ctx, end := context.WithCancelCause(req.Context())
	resp, err := c.Do(req.WithContext(ctx))
	if err != nil {
		end(nil)
		if bare, ok := errors.AsType[*url.Error](err); ok {
			err = bare.Err // whoever tells of it has said whom was asked
		}
		return nil, err
	}
	quiet := time.AfterFunc(stall, func() { end(fmt.Errorf("no byte for %s", stall)) })
	quiet.Stop()
	resp.Body = &body{ReadCloser: resp.Body, ctx: ctx, end: end, stall: stall, quiet: quiet}
	return resp, nil
}

// body is an answer that may stand still.
type body struct {
	io.ReadCloser
	ctx   context.Context
	end   context.CancelCauseFunc
	stall time.Duration
	quiet *time.Timer // runs while a byte is waited for
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
