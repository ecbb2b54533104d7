package main

import (
	"context"
	"io"
)

// typed is what comes in until ctx ends: whoever reads a terminal, or a pipe into which nobody writes, hears no signal meanwhile.
func typed(ctx context.Context, in io.Reader) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })
	return r
}
