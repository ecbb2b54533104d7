package main

import (
	"context"
	"io"
)

// typed returns a reader of in whose Read fails once ctx ends. A Read of a terminal, or of a pipe into which nobody writes, would block
// past the signal that ends ctx. It begins to read at once, so it is for verbs that were told to read in: what they take is missing to
// others, such as the loop of a script.
func typed(ctx context.Context, in io.Reader) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })
	return r
}
