package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// watchPace is how often a watched thing is looked at: heartbeats come each second, so nothing is newer.
const watchPace = time.Second

// show prints what draw draws: once, or each second until ctx ends. A terminal is redrawn in place, anything else gets
// one picture after the other. Only the first look may fail; later a coordinator that is away is a thing to wait out.
func show(ctx context.Context, watch bool, stdout, stderr io.Writer, draw func(ctx context.Context, w io.Writer) error) error {
	said := ""
	for first := true; ; first = false {
		p := picture{width: lineWidth(stdout)}
		err := draw(ctx, &p)
		switch {
		case watch && !first && ctx.Err() != nil:
			return nil
		case err != nil && (first || !watch):
			return err
		case err != nil && err.Error() == said: // it stands below the picture
		case err != nil:
			said = err.Error()
			fmt.Fprintf(stderr, "lifeboat: %s (looking again until it answers)\n", said)
		default:
			said = ""
			out := p.String()
			if width, height := terminalSize(stdout); watch && width > 0 {
				out = redraw(out, width, height)
			}
			if _, err := io.WriteString(stdout, out); err != nil {
				return err
			}
		}
		if !watch || !sleep(ctx, watchPace) {
			return nil
		}
	}
}

// redraw puts a picture over the last one without the flicker of clearing first (ECMA-48: CUP home, EL, ED). What does not fit
// is cut at its end: a picture that scrolled would show its end alone, and what matters stands first.
func redraw(picture string, width, height int) string {
	lines := strings.Split(strings.TrimSuffix(picture, "\n"), "\n")
	if room := max(height-2, 1); len(lines) > height-1 { // the cursor rests on a line of its own
		lines = append(lines[:room:room], "… "+count(int64(len(lines)-room), "line")+" more than this window has")
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	for _, line := range lines {
		b.WriteString(cut(line, width) + "\x1b[K\n")
	}
	return b.String() + "\x1b[J"
}

// sleep waits, and tells whether ctx let it.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

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
