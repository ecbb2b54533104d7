package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

// leaving is a leaving node as one look found it.
type leaving struct {
	node  string
	line  string // progress, for people
	gist  string // the line without its numbers: while it stays the same there is no news
	ended bool
	// Once ended: the exit code, and the reason if it is not exitDone.
	verdict int
	why     string
	lost    bool // it lost blocks, which its manifest names
}

// errAway is the error of a look that may succeed when it is repeated.
type errAway struct{ error }

func (e errAway) Unwrap() error { return e.error }

// waiter shows progress on stderr until every node has ended.
type waiter struct {
	stderr   io.Writer
	size     func() (width, height int) // of the terminal on stderr; 0: stderr is no terminal
	what     string                     // what is waited for
	undo     string                     // the command that takes it back
	again    string                     // the command that shows it again
	patience time.Duration              // how long looks may fail with errAway; 0: for ever
	lines    int                        // on the terminal, to be drawn over
	said     map[string]saidLine
}

// saidLine is the last line written of a node where nothing can be drawn over.
type saidLine struct {
	gist string
	at   time.Time
}

// logPace is how often a log file gets a line of a node of which only numbers changed.
const logPace = 10 * time.Second

func newWaiter(stderr io.Writer, what, undo string) *waiter {
	return &waiter{stderr: stderr, size: func() (int, int) { return show.TerminalSize(stderr) }, what: what, undo: undo}
}

// run looks until all nodes have ended, and returns them. It repeats looks that fail with errAway, and says so once for each streak.
func (w *waiter) run(ctx context.Context, look func(context.Context) ([]leaving, error)) ([]leaving, error) {
	var awaySince time.Time
	began := time.Now()
	for {
		ask, cancel := context.WithTimeout(ctx, askTimeout)
		nodes, err := look(ask)
		cancel()
		away, passing := errors.AsType[errAway](err)
		switch {
		case ctx.Err() != nil:
			return nil, w.detach()
		case err == nil:
			awaySince = time.Time{}
			w.draw(nodes)
			if !slices.ContainsFunc(nodes, func(n leaving) bool { return !n.ended }) {
				return nodes, nil
			}
		case !passing:
			return nil, err
		case awaySince.IsZero():
			awaySince = time.Now()
			w.say("waiting on: " + away.Error())
		case w.patience > 0 && time.Since(awaySince) >= w.patience:
			return nil, fmt.Errorf("gave up waiting after %s: %w", show.Span(w.patience), away)
		}
		if !await.Sleep(ctx, waitPace(time.Since(began))) {
			return nil, w.detach()
		}
	}
}

// waitPace returns the pause before the next look after having waited for so long. A node with few blocks drains in a moment: a script
// that holds up a shutdown learns it no later than after a quarter of the time that the drain took.
func waitPace(waited time.Duration) time.Duration {
	return min(max(waited/4, show.WatchPace/20), show.WatchPace)
}

func (w *waiter) draw(nodes []leaving) {
	width, height := w.size()
	if width == 0 {
		w.note(nodes)
		return
	}
	if w.lines > 0 {
		fmt.Fprintf(w.stderr, "\x1b[%dA\x1b[J", w.lines) // ECMA-48: CUU, ED
	}
	room := max(height-1, 2) // the cursor rests on a line of its own
	lines := picked(nodes, room)
	var whole []string
	for _, line := range lines {
		whole = append(whole, broken(show.Plain(line), width)...)
	}
	if len(whole) <= room { // else each has the line that it is cut to
		lines = whole
	}
	w.lines = len(lines)
	for _, line := range lines {
		fmt.Fprintln(w.stderr, show.Cut(show.Plain(line), width)) // a line that wraps could not be drawn over whole
	}
}

// broken splits a line that is too wide, between its parts if possible: what a node waits for is at the end.
func broken(line string, width int) (lines []string) {
	for part := range strings.SplitSeq(line, "  ") {
		if last := len(lines) - 1; last >= 0 && show.Columns(lines[last]+"  "+part) <= width {
			lines[last] += "  " + part
			continue
		}
		for _, words := range show.Fold(part, width-2) {
			if len(lines) > 0 {
				words = "  " + words
			}
			lines = append(lines, words)
		}
	}
	return lines
}

// picked returns the lines of nodes, at most room of them: lines that scrolled away could not be drawn over. Nodes that ended well are
// left out first.
func picked(nodes []leaving, room int) (lines []string) {
	shown, done := nodes, 0
	if len(nodes) > room {
		shown = slices.DeleteFunc(slices.Clone(nodes), func(n leaving) bool { return n.ended && n.verdict == exitDone })
		done = len(nodes) - len(shown)
		shown = shown[:min(len(shown), room-1)]
	}
	for _, n := range shown {
		lines = append(lines, n.node+"  "+n.line)
	}
	switch more := len(nodes) - len(shown) - done; {
	case done > 0 && more > 0:
		lines = append(lines, fmt.Sprintf("… %s more than this window has, and %d that are done", show.Count(int64(more), "node"), done))
	case more > 0:
		lines = append(lines, fmt.Sprintf("… %s more than this window has", show.Count(int64(more), "node")))
	case done > 0:
		lines = append(lines, fmt.Sprintf("… and %s done", show.Count(int64(done), "node")))
	}
	return lines
}

// note writes a line for each node of which there is news, and every logPace for the others that are still leaving.
func (w *waiter) note(nodes []leaving) {
	if w.said == nil {
		w.said = map[string]saidLine{}
	}
	now := time.Now()
	for _, n := range nodes {
		was, before := w.said[n.node]
		if before && was.gist == n.gist && (n.ended || now.Sub(was.at) < logPace) {
			continue
		}
		w.said[n.node] = saidLine{n.gist, now}
		fmt.Fprintln(w.stderr, show.Plain(n.node+"  "+n.line))
	}
}

func (w *waiter) say(line string) {
	w.lines = 0
	fmt.Fprintln(w.stderr, show.Plain(line))
}

func (w *waiter) detach() error {
	return fmt.Errorf("detached: %s goes on; `%s` shows it again, `%s` takes it back", w.what, w.again, w.undo)
}
