package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// If there was no time to tell all peers which copies are out of date, each look goes on with that, and it is logged once.
func TestLookoutGoesOnToldWhatToForget(t *testing.T) {
	var said bytes.Buffer
	v := &lookout{vigil: &vigil{course: &course{log: slog.New(slog.NewTextHandler(&said, nil))}}}
	looks, short := 0, 2
	tell := func(context.Context) ([]string, error) {
		if looks++; looks <= short {
			return nil, errors.New("no time for more")
		}
		return []string{"b"}, nil
	}
	v.forget(t.Context(), true, fates{}, tell)
	for range 4 {
		v.forget(t.Context(), false, fates{gone: []string{"b"}}, tell)
	}
	if n := strings.Count(said.String(), "not all peers could be told yet"); looks != short+1 || n != 1 {
		t.Errorf("%d looks and %d lines in the log, want %d and 1: %s", looks, n, short+1, said.String())
	}
	v.forget(t.Context(), false, fates{}, tell) // b is back
	if looks != short+2 {
		t.Errorf("%d looks once who was away is back, want %d", looks, short+2)
	}
}
