package show

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/await"
)

// WatchPace is how often --watch asks again: heartbeats come each second, so faster would show nothing new.
const WatchPace = time.Second

// Draw prints what draw draws: once, or with watch each second until ctx ends. It redraws a terminal in place, and writes one picture
// after the other to anything else. An error of the first draw is returned; later ones are printed and tried again, since a coordinator
// that is away comes back.
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
		case err != nil && err.Error() == said: // said already, below the picture
		case err != nil:
			said = err.Error()
			fmt.Fprintf(stderr, "lifeboat: %s (looking again until it answers)\n", Plain(said))
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
		if !await.Sleep(ctx, WatchPace) {
			return nil
		}
	}
}

// redraw returns a picture that is drawn over the last one, without the flicker of clearing first (ECMA-48: CUP home, EL, ED). It cuts
// the lines at the end that do not fit: a picture that scrolls would show only its end, and what matters stands first.
func redraw(picture string, width, height int) string {
	lines := strings.Split(strings.TrimSuffix(picture, "\n"), "\n")
	if room := max(height-2, 1); len(lines) > height-1 { // the cursor takes a line
		lines = append(lines[:room:room], "… "+Count(int64(len(lines)-room), "line")+" more than this window has")
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	for _, line := range lines {
		b.WriteString(Cut(line, width) + "\x1b[K\n")
	}
	return b.String() + "\x1b[J"
}

// WatchFlag adds --watch, for verbs that use Draw.
func WatchFlag(cmd *cobra.Command, watch *bool) {
	cmd.Flags().BoolVar(watch, "watch", false, "look again each second until interrupted")
}
