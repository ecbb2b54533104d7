package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

// A coordinator that answers no is not asked again for half a minute, and its reason is not that it does not run yet.
func TestInitTakesANo(t *testing.T) {
	f := newFleet(t, false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	i := &initialiser{advertise: f.coordinator, dir: f.dir, life: time.Hour}
	if _, err := i.token(ctx); err == nil || ctx.Err() != nil || !strings.HasPrefix(err.Error(), "make a join token: ") {
		t.Errorf("got %v, after all of its time: %t", err, ctx.Err() != nil)
	}
}
