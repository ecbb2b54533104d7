package api

import (
	"errors"
	"io"
	"iter"
)

// Received yields what the stream of a call brings until its end, as in Received(operator.ListApps(ctx, r)). After an error comes nothing.
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
