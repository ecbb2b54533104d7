package api

import (
	"errors"
	"io"
	"iter"
)

// Received yields the messages of a call's stream until it ends, as in Received(operator.ListApps(ctx, r)). An error is the last that it
// yields.
func Received[T any](stream interface{ Recv() (*T, error) }, err error) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		for err == nil {
			var m *T
			switch m, err = stream.Recv(); {
			case errors.Is(err, io.EOF):
				return
			case err == nil && !yield(m, nil):
				return
			}
		}
		yield(nil, err)
	}
}
