package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

// leaving is what one look at a node that leaves showed.
type leaving struct {
	node  string
	line  string // progress, for people
	gist  string // of the line: what it is about when nothing but numbers changes
	ended bool
	// Once ended: the exit code that tells it, and why when that is not "done".
	verdict int
	why     string
	lost    bool // some blocks, which its manifest names
}

// errAway says that a look failed in a way that may pass.
type errAway struct{ error }

func (e errAway) Unwrap() error { return e.error }

// waiter shows progress on stderr until every node has ended.
type waiter struct {
	stderr   io.Writer
	size     func() (width, height int) // of the terminal on stderr; 0: it is none
	what     string                     // is waited for
	undo     string                     // the command that would take it back
	again    string                     // the command that would show it again
	patience time.Duration              // how long the one who is asked may be away; 0: for ever
	lines    int                        // on the terminal, to be drawn over
	said     map[string]saidLine
}

// saidLine is what was last written of a node where nothing can be drawn over.
type saidLine struct {
	gist string
	at   time.Time
}

// logPace is how often a log file is told of a node of which nothing is new but numbers.
const logPace = 10 * time.Second

func newWaiter(stderr io.Writer, what, undo string) *waiter {
	return &waiter{stderr: stderr, size: func() (int, int) { return show.TerminalSize(stderr) }, what: what, undo: undo}
}

// run looks again and again. A look that fails with errAway is looked at again, said once a streak.
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
		if !sleep(ctx, waitPace(time.Since(began))) {
			return nil, w.detach()
		}
	}
}

// waitPace is how soon to look again after having waited for so long. A node with little to carry is empty in a moment, and a
// script that holds up a shutdown waits no longer than a quarter of that for the news.
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
	lines := picked(nodes, max(height-1, 2)) // the cursor rests on a line of its own
	w.lines = len(lines)
	for _, line := range lines {
		fmt.Fprintln(w.stderr, show.Cut(show.Plain(line), width)) // one that wraps would not be drawn over whole
	}
}

// picked are the lines of nodes, at most so many: what scrolled away could not be drawn over. Those that have ended well make room
// first.
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

// note writes a line for each node of which there is news, and now and then for the others that are under way.
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

// sleep waits, and tells whether ctx let it.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
