package preemption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// staleAfter is how long ago the time of a notice may be that is seen for the first time. After a reclaim that fell through,
// EC2 may go on showing its time for ever.
const staleAfter = time.Minute

// troubleSettles is how long a service must answer before the log says that its trouble is over. A service that is slow, or
// that this host asks too often, fails and answers in turns, for hours.
const troubleSettles = 30 * time.Second

// belief is what a metadata service last said at one path: the notices that stand there. Only a definite answer changes it.
type belief struct {
	source string
	path   string // also the start of its notices' ids
	every  time.Duration
	// goneAfter is how many answers in a row must leave a notice out before it counts as withdrawn.
	goneAfter int
	// missingFor is how long the path must be missing, while a notice stands there, before that counts as an answer.
	missingFor time.Duration
	// read turns the body of an answer into the notices that stand, without SeenAt. The id of each is the path, or begins
	// with the path and a slash. With an error it returns the notices that it could read: these stand, and nothing is known
	// of others. It must not keep body.
	read func(body []byte, now time.Time) ([]Notice, error)
	log  *slog.Logger

	trouble streak
	due     time.Time
	known   []told
	missing time.Time // since when the path of a standing notice is missing; zero: it is not, or none stands

	mu       sync.Mutex // guards what follows
	lastGood time.Time
	lastErr  string
}

// told is a notice that stands.
type told struct {
	notice Notice
	gone   int  // answers in a row that left it out
	stale  bool // its time had passed when it was first seen, so nobody was told
	past   bool // the time that the service last showed had passed
}

// newBelief returns the belief of a source at a path that has not answered yet.
func newBelief(log *slog.Logger, source, path string, every time.Duration, goneAfter int, read func([]byte, time.Time) ([]Notice, error)) *belief {
	b := &belief{source: source, path: path, every: every, goneAfter: goneAfter, read: read, log: log.With("source", source, "path", path)}
	b.trouble = streak{log: b.log, what: "metadata service", settles: troubleSettles}
	return b
}

// believe takes over those notices from before a restart that are this belief's.
func (b *belief) believe(notices ...Notice) {
	for _, n := range notices {
		if n.Source == b.source && b.owns(n.ID) && !n.Withdrawn {
			n.Stance = "" // the policy in force decides
			b.known = append(b.known, told{notice: n})
		}
	}
}

func (b *belief) owns(id string) bool { return id == b.path || strings.HasPrefix(id, b.path+"/") }

// hear weighs one answer: a body, nothing found, or an error, which means that nothing is known. It returns what is new,
// notices before withdrawals, so that a notice that replaces another leaves no gap. The returned error is why the answer
// counts for nothing except the notices that could be read in it.
func (b *belief) hear(body []byte, found bool, err error, now time.Time) ([]Notice, error) {
	var said []Notice
	if err == nil && found {
		said, err = b.read(body, now)
	}
	if err == nil && b.isMissing(found, now) {
		err = errMissing
	}
	b.note(err, now)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) { // the answer may still come, and be the second that leaves a notice out
			for i := range b.known {
				b.known[i].gone = 0 // "not known" breaks the row of answers that left it out
			}
			if !errors.Is(err, errMissing) {
				b.missing = time.Time{}
			}
		}
		b.trouble.failed(err)
		return b.present(said, now), err
	}
	b.trouble.worked()
	return append(b.present(said, now), b.absent(said)...), nil
}

// errMissing is the answer of a service that does not know its own paths yet, as when it has just restarted.
var errMissing = fmt.Errorf("a notice stood where there is nothing now: %w", &statusError{http.StatusNotFound})

// isMissing reports whether a missing path counts as no answer yet.
func (b *belief) isMissing(found bool, now time.Time) bool {
	if found || len(b.known) == 0 {
		b.missing = time.Time{}
		return false
	}
	if b.missing.IsZero() {
		b.missing = now
	}
	return now.Sub(b.missing) < b.missingFor
}

// present takes in the notices of an answer, and returns those that are news.
func (b *belief) present(said []Notice, now time.Time) (news []Notice) {
	for _, n := range said {
		n.Source, n.SeenAt = b.source, now
		if !n.Deadline.IsZero() {
			n.Deadline = anchored(n.Deadline) // or the same deadline would seem another once the wall clock is set
		}
		stale := !n.Deadline.IsZero() && !n.Stands && now.Sub(n.Deadline) > staleAfter
		at := slices.IndexFunc(b.known, func(t told) bool { return t.notice.same(n) })
		if at < 0 {
			b.known = append(b.known, told{notice: n, stale: stale})
			if stale {
				b.log.Warn("stale notice ignored: its time is past, unless this host's clock is ahead", "kind", n.Kind, "deadline", n.Deadline)
			} else {
				news = append(news, n)
			}
			continue
		}
		known := &b.known[at]
		known.gone = 0
		another := known.past && !stale && !n.Deadline.IsZero() // a new time after one that had passed: the earlier notice came to nothing
		known.past = stale
		switch {
		case known.stale && stale:
		case known.stale, another:
			*known = told{notice: n}
			news = append(news, n)
		default:
			if next := update(known.notice, n, stale); next != known.notice {
				known.notice = next
				news = append(news, next)
			}
		}
	}
	return news
}

// update applies the source's newer word to a known notice. Only an earlier deadline is news, because AWS's own mock shows
// "two minutes from now" at each poll, for ever. But a time to come after one that had passed is another notice (see
// present), and an appointment moves either way, even when its time has come and it is an appointment no more.
func update(known, said Notice, stale bool) Notice {
	next := known
	if said.Kind != known.Kind {
		next.Kind, next.Reason = said.Kind, said.Reason
	}
	next.Appointed, next.Stands = said.Appointed, said.Stands
	switch moved := known.Deadline.Sub(said.Deadline); {
	case stale || said.Deadline.IsZero():
	case known.Deadline.IsZero(), moved > slack, (known.Appointed || said.Appointed) && moved < -slack:
		next.Deadline = said.Deadline
	}
	return next
}

// absent withdraws the notices that enough answers in a row have left out.
func (b *belief) absent(said []Notice) (withdrawn []Notice) {
	b.known = slices.DeleteFunc(b.known, func(t told) bool {
		return t.stale && !contains(said, t.notice)
	})
	for i := range b.known {
		if t := &b.known[i]; !contains(said, t.notice) {
			t.gone++
		}
	}
	b.known = slices.DeleteFunc(b.known, func(t told) bool {
		if t.gone < b.goneAfter {
			return false
		}
		n := t.notice
		n.Withdrawn, n.Reason = true, "the metadata service no longer shows "+n.ID
		withdrawn = append(withdrawn, n)
		return true
	})
	return withdrawn
}

func contains(notices []Notice, n Notice) bool {
	return slices.ContainsFunc(notices, func(m Notice) bool { return m.ID == n.ID })
}

func (b *belief) note(err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.lastErr = err.Error()
		return
	}
	b.lastGood, b.lastErr = now, ""
}

func (b *belief) health() Health {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Health{Source: b.source, Path: b.path, LastGood: b.lastGood, Trouble: b.lastErr}
}
