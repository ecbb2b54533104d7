package heartbeat

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
)

// sameDeadline is how far a deadline may seem to move before it is another one: the remaining time crosses the wire, so
// every slow reply shifts it a little.
const sameDeadline = 2 * time.Second

// wish is a directive with its remaining time turned into an instant of this machine's clock. A nil wish is none.
type wish struct {
	directive *api.Directive
	deadline  time.Time // zero: no limit
}

// wishes turns the directive that every reply repeats into the changes that NextDirective returns. It compares the newest
// directive with the one given last, so that neither a lost reply nor a slow caller loses a change.
type wishes struct {
	mu     sync.Mutex // guards what follows
	wished *wish
	given  *wish
	apps   []string // of the last reply
	heard  bool     // there was a reply since the start

	changed await.News // wished is no longer what was given
}

// hear takes what one reply says; nil or no id: nothing is wished.
func (w *wishes) hear(d *api.Directive) {
	var heard *wish
	if d.GetDecommission() != "" {
		heard = &wish{directive: d}
		if d.Remaining != nil {
			heard.deadline = time.Now().Add(span(d.Remaining))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wished, w.apps, w.heard = heard, d.GetApps(), true
	if !same(w.wished, w.given) {
		w.changed.Tell()
	}
}

func (w *wishes) next(ctx context.Context) (*api.Directive, error) {
	for {
		w.mu.Lock()
		if !same(w.wished, w.given) {
			w.given = w.wished
			defer w.mu.Unlock()
			return w.given.now(), nil
		}
		changed := w.changed.Next()
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		}
	}
}

// elsewhere returns the apps that the last reply named, and whether there was one since the start.
func (w *wishes) elsewhere() (apps []string, heard bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.apps, w.heard
}

// now is the directive with the time that remains at this moment.
func (w *wish) now() *api.Directive {
	if w == nil {
		return nil
	}
	d := proto.CloneOf(w.directive)
	if !w.deadline.IsZero() {
		d.Remaining = durationpb.New(time.Until(w.deadline))
	}
	return d
}

func same(a, b *wish) bool {
	switch {
	case a == nil || b == nil:
		return a == b
	case a.directive.GetDecommission() != b.directive.GetDecommission():
		return false
	case a.deadline.IsZero() || b.deadline.IsZero():
		return a.deadline.IsZero() == b.deadline.IsZero()
	}
	return a.deadline.Sub(b.deadline).Abs() <= sameDeadline
}

// believe takes over the directive that an earlier process was given, so that its end is news. Its deadline is not known
// here, so the first reply is news too, even one without a deadline.
func (w *wishes) believe(d *api.Directive) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.given = &wish{directive: d, deadline: time.Unix(0, 0)} // a deadline that no order has
	w.wished = w.given
}
