package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/dev"
	"github.com/lifeboat/lifeboat/migration"
)

// screen shows lines that stay and a few progress lines that it draws over. Without a terminal it writes those at most every quietPace.
type screen struct {
	w     io.Writer
	width int // 0: not a terminal
	drawn int
	last  time.Time
}

func newScreen(w io.Writer) *screen {
	width, _ := show.TerminalSize(w)
	return &screen{w: w, width: width}
}

func (s *screen) say(format string, args ...any) {
	s.keep()
	fmt.Fprintf(s.w, format+"\n", args...)
}

// keep leaves the last progress on the screen: the next is drawn below it.
func (s *screen) keep() { s.drawn, s.last = 0, time.Time{} }

// quietPace is how often the progress lines go to a log file, where nothing can be drawn over.
const quietPace = 2 * time.Second

// progress draws over the lines that it drew before.
func (s *screen) progress(format string, args ...any) {
	if s.width == 0 && time.Since(s.last) < quietPace || time.Since(s.last) < 50*time.Millisecond {
		return
	}
	s.last = time.Now()
	lines := strings.Split(fmt.Sprintf(format, args...), "\n")
	if s.drawn > 0 && s.width > 0 {
		fmt.Fprintf(s.w, "\x1b[%dA\x1b[J", s.drawn) // ECMA-48: CUU, ED
	}
	for _, l := range lines {
		if s.width > 0 {
			l = show.Cut(l, s.width)
		}
		fmt.Fprintln(s.w, l)
	}
	s.drawn = len(lines)
}

// drainPace is quick enough to look alive.
const drainPace = 100 * time.Millisecond

// watchDrain shows the first node's drain until it is over.
func watchDrain(ctx context.Context, fleet *dev.Fleet, s *screen) error {
	tick := time.NewTicker(drainPace)
	defer tick.Stop()
	for {
		status, err := fleet.Status(ctx)
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		over := status.Status.GetDrain().GetPhase() == string(migration.PhaseDrained) && status.Manifest != nil
		if over {
			s.last = time.Time{} // the last state is always shown
		}
		s.progress("%s", drainView(status))
		if over {
			s.keep()
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// drainView is the picture of a running drain: the countdown, the whole, and each peer's part.
func drainView(a *api.AgentStatus) string {
	n, d := a.Status.GetNotice(), a.Status.GetDrain()
	if n == nil {
		return "node-1  waiting for the notice to be heard"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s left  %s", a.Node, n.Kind, strings.TrimPrefix(show.Left(n.Remaining), "in "), d.GetPhase())
	if d == nil {
		return b.String()
	}
	fmt.Fprintf(&b, "\n  %s %3.0f%%  %d of %d blocks  %s of %s  %s/s", bar(d.BytesMoved, d.BytesTotal, 16), percent(d.BytesMoved, d.BytesTotal),
		d.BlocksMoved, d.BlocksTotal, show.Size(d.BytesMoved), show.Size(d.BytesTotal), show.Size(d.BytesPerSecond))
	for _, p := range d.Peers {
		line := fmt.Sprintf("\n  to %-10s %6d blocks  %9s  %s", show.Plain(p.Node), p.Blocks, show.Size(p.Bytes), show.Plain(p.Trouble))
		b.WriteString(strings.TrimRight(line, " "))
	}
	return b.String()
}

func percent(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(min(part, whole)) / float64(whole) // min: a block rewritten during the drain is moved twice
}

func bar(part, whole int64, width int) string {
	full := int(percent(part, whole) / 100 * float64(width))
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}
