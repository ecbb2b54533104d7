package show

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An error is printed when it begins: printed each second it would scroll the picture away.
func TestWatchLooksEachSecondAndOutlivesTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 6500*time.Millisecond)
		defer cancel()
		var stdout, stderr bytes.Buffer
		looks := 0
		err := Draw(ctx, true, &stdout, &stderr, func(_ context.Context, w io.Writer) error {
			if looks++; looks == 2 || looks == 3 || looks == 6 {
				fmt.Fprintln(w, "half a picture")
				return errors.New("away\x1b[2J")
			}
			fmt.Fprintln(w, looks)
			return nil
		})
		if err != nil || stdout.String() != "1\n4\n5\n7\n" || stderr.String() != strings.Repeat("lifeboat: away?[2J (looking again until it answers)\n", 2) {
			t.Errorf("got %q, %q, %v", stdout.String(), stderr.String(), err)
		}
	})
}

// A picture larger than the window would scroll, and show only its end each time.
func TestWatchFitsTheWindow(t *testing.T) {
	for _, c := range []struct{ picture, want string }{
		{"", "\x1b[K\n"},
		{"a\nb\nc\n", "a\x1b[K\nb\x1b[K\nc\x1b[K\n"},
		{"a\nb\nc\nd\n", "a\x1b[K\nb\x1b[K\n… 2 lines more than this window has\x1b[K\n"},
		{strings.Repeat("w", 41) + "\n", strings.Repeat("w", 39) + "…\x1b[K\n"},
	} {
		if got, want := redraw(c.picture, 40, 4), "\x1b[H"+c.want+"\x1b[J"; got != want {
			t.Errorf("of %q: got %q, want %q", c.picture, got, want)
		}
	}
}

func TestWatchFailsWhenTheFirstLookDoes(t *testing.T) {
	away := errors.New("away")
	err := Draw(t.Context(), true, io.Discard, io.Discard, func(context.Context, io.Writer) error { return away })
	if err != away {
		t.Errorf("got %v, want %v", err, away)
	}
}
