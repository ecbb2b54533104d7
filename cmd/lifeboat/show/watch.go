package show

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// WatchPace is how often a watched thing is looked at: heartbeats come each second, so nothing is newer.
const WatchPace = time.Second

// Draw prints what draw draws: once, or each second until ctx ends. A terminal is redrawn in place, anything else gets
// one picture after the other. Only the first look may fail; later a coordinator that is away is a thing to wait out.
func Draw(ctx context.Context, watch bool, stdout, stderr io.Writer, draw func(ctx context.Context, w io.Writer) error) error {
	said := ""
	for first := true; ; first = false {
		p := Picture{Width: WidthOf(stdout)}
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
			if width, height := TerminalSize(stdout); watch && width > 0 {
				out = redraw(out, width, height)
			}
			if _, err := io.WriteString(stdout, out); err != nil {
				return err
			}
		}
		if !watch {
			return nil
		}
		select {
		case <-time.After(WatchPace):
		case <-ctx.Done():
			return nil
		}
	}
}

// redraw puts a picture over the last one without the flicker of clearing first (ECMA-48: CUP home, EL, ED). What does not fit
// is cut at its end: a picture that scrolled would show its end alone, and what matters stands first.
func redraw(picture string, width, height int) string {
	lines := strings.Split(strings.TrimSuffix(picture, "\n"), "\n")
	if room := max(height-2, 1); len(lines) > height-1 { // the cursor rests on a line of its own
		lines = append(lines[:room:room], "… "+Count(int64(len(lines)-room), "line")+" more than this window has")
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	for _, line := range lines {
		b.WriteString(Cut(line, width) + "\x1b[K\n")
	}
	return b.String() + "\x1b[J"
}

// WatchFlag is that of the verbs that Draw.
func WatchFlag(cmd *cobra.Command, watch *bool) {
	cmd.Flags().BoolVar(watch, "watch", false, "look again each second until interrupted")
}
