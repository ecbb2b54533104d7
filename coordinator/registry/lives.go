package registry

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Events about apps that are in the log.
const (
	EventAppEnded   = "AppEnded"
	EventAppResumed = "AppResumed" // an operator took the end back
)

const (
	DoBeatApp   Verb = "beat-app"   // an app's first beat, or one that changes its lease
	DoEndApps   Verb = "end-apps"   // by the app itself or an operator
	DoLapseApps Verb = "lapse-apps" // by the leader's clock
	DoResume    Verb = "resume-apps"
)

// keptLives bounds the apps that are remembered, some 200 bytes each. The apps that ended longest ago make room: their landed blocks
// are then removed by age.
const keptLives = 16384

// Beats reports whether the app runs and has a lease, so that its silence means something.
func (l Life) Beats() bool { return l.Over == "" && l.Lease > 0 }

// Reasons why a beat or the end of an app is refused.
var (
	ErrAppOver   = errors.New("it is over")
	ErrAppOthers = errors.New("another certificate speaks for it")
	ErrAppNobody = errors.New("nobody spoke for it before")
	ErrManyApps  = fmt.Errorf("%d apps run already, which is all that are kept", keptLives)
)

// tryApps works out the apps after c. It leaves t as it is if c only repeats what is so already, as most beats do. Lives and the map are
// replaced, never changed: a snapshot may be reading them.
func (m *Registry) tryApps(c Command, t *trial) (err error) {
	for _, app := range c.Apps {
		was, known := t.lives[app]
		now, what := was, ""
		switch c.Do {
		case DoBeatApp:
			now, err = was.beat(c, known)
		case DoEndApps, DoLapseApps:
			now, what, err = was.end(c, known)
		case DoResume:
			if was.Over != "" {
				now, what = Life{Owner: was.Owner, Since: c.At}, EventAppResumed // without a lease: its silence means nothing before it beats again
			}
		default:
			err = fmt.Errorf("command %q is not known to this lifeboat", c.Do)
		}
		if err != nil {
			return fmt.Errorf("app %s: %w", app, err)
		}
		if now == was {
			continue
		}
		if !t.changed {
			t.lives, t.changed = maps.Clone(m.Lives), true
		}
		if t.lives == nil {
			t.lives = map[string]Life{}
		}
		t.lives[app] = now
		if what != "" {
			e := Event{Index: m.LastEvent + uint64(len(t.events)) + 1, Time: c.At, Type: what}
			e.Data = Saying("app", app, "why", now.Over, "by", c.Asked.by())
			t.events = append(t.events, e)
		}
	}
	if t.changed && !makeRoom(t.lives, c.At) {
		return ErrManyApps
	}
	return nil
}

// beat is the life of an app that has beaten.
func (l Life) beat(c Command, known bool) (Life, error) {
	switch {
	case !known:
		return Life{Owner: c.Owner, Lease: c.Lease, Since: c.At}, nil
	case l.Owner != "" && l.Owner != c.Owner:
		return l, fmt.Errorf("%w: %s", ErrAppOthers, l.Owner)
	case l.Over != "":
		return l, fmt.Errorf("%w: %s", ErrAppOver, l.Over)
	}
	l.Owner, l.Lease = c.Owner, c.Lease
	return l, nil
}

// end is the life of an app that an operator, the app itself (by its owner) or the clock says is over. An app that is over already stays
// as it is, with the first reason.
func (l Life) end(c Command, known bool) (Life, string, error) {
	switch {
	case c.Owner != "" && !known:
		return l, "", ErrAppNobody
	case c.Owner != "" && l.Owner != c.Owner:
		return l, "", fmt.Errorf("%w: %s", ErrAppOthers, cmp.Or(l.Owner, "an operator's"))
	case l.Over != "", c.Do == DoLapseApps && !l.Beats():
		return l, "", nil
	}
	return Life{Owner: l.Owner, Lease: l.Lease, Since: c.At, Over: c.Reason}, EventAppEnded, nil
}

// makeRoom forgets the apps that have been over for longer than ForgetAfter, and then, while there are more than keptLives, those that
// ended longest ago. It reports whether the rest fits: apps that run are never forgotten.
func makeRoom(lives map[string]Life, at time.Time) (fits bool) {
	maps.DeleteFunc(lives, func(_ string, l Life) bool { return l.Over != "" && at.Sub(l.Since) > ForgetAfter })
	if len(lives) <= keptLives {
		return true
	}
	var over []string
	for app, l := range lives {
		if l.Over != "" {
			over = append(over, app)
		}
	}
	slices.SortFunc(over, func(a, b string) int { return cmp.Or(lives[a].Since.Compare(lives[b].Since), cmp.Compare(a, b)) })
	for _, app := range over[:min(len(over), len(lives)-keptLives)] {
		delete(lives, app)
	}
	return len(lives) <= keptLives
}

// Life is what is durably known of an app that has beaten or was ended. When it last beat is soft.
type Life struct {
	Owner string        `json:"owner,omitempty"` // the certificate that beats for it; empty: none does
	Lease time.Duration `json:"lease,omitempty"` // how long it may be silent; 0: it never beat
	Since time.Time     `json:"since"`           // since when it runs, or is over
	Over  string        `json:"over,omitempty"`  // why it is over; empty: it runs
}
