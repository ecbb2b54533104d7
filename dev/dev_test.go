package dev

import (
	"context"
	"errors"
	"testing"
)

// A fleet that is told to end while it starts returns the cause it was given, not an error of a daemon.
func TestStartInterrupted(t *testing.T) {
	enough := errors.New("enough")
	ctx, end := context.WithCancelCause(t.Context())
	end(enough)
	f, err := Start(ctx, Config{Dir: t.TempDir(), Nodes: 2, Blocks: 10, Bytes: 1 << 20})
	if !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
