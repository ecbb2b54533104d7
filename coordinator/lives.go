package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// What happens to apps, and is in the log.
const (
	evAppEnded   = "AppEnded"
	evAppResumed = "AppResumed" // an operator took back that it is over
)

const (
	doBeatApp   verb = "beat-app"   // its first word, or one that changes its lease
	doEndApps   verb = "end-apps"   // somebody's word
	doLapseApps verb = "lapse-apps" // the leader's clock
	doResume    verb = "resume-apps"
)

// keptLives bounds the apps that are remembered, some 200 bytes each. Those that have been over for longest make room:
// what landed of theirs goes by its age.
const keptLives = 16384

// life is what is durably known of an app that somebody spoke for. Whether it beats is soft.
type life struct {
	Owner string        `json:"owner,omitempty"` // whose certificate speaks for it; empty: nobody's does
	Lease time.Duration `json:"lease,omitempty"` // how long it may be silent; 0: it never beat
	Since time.Time     `json:"since"`           // it runs, or is over
	Over  string        `json:"over,omitempty"`  // why it is; empty: it runs
}

// beats says whether its silence would mean something.
func (l life) beats() bool { return l.Over == "" && l.Lease > 0 }

// Reasons why an app may not say what it says.
var (
	errAppOver   = errors.New("it is over")
	errAppOthers = errors.New("another certificate speaks for it")
	errAppNobody = errors.New("nobody spoke for it before")
	errManyApps  = fmt.Errorf("%d apps run already, which is all that are kept", keptLives)
)

// livesAfter is what c makes of the apps. Without a change it was so already, as it mostly is when one beats. A life is
// replaced, never changed, and so is the map: a snapshot may be reading it.
func (m *machine) livesAfter(c command) (after map[string]life, changed bool, events []event, err error) {
	after = m.Lives
	for _, app := range c.Apps {
		was, known := after[app]
		now, what := was, ""
		switch c.Do {
		case doBeatApp:
			now, err = was.beat(c, known)
		case doEndApps, doLapseApps:
			now, what, err = was.end(c, known)
		case doResume:
			if was.Over != "" {
				now, what = life{Owner: was.Owner, Since: c.At}, evAppResumed // it has to beat again before its silence means anything
			}
		default:
			err = fmt.Errorf("command %q is not known to this lifeboat", c.Do)
		}
		if err != nil {
			return nil, false, nil, fmt.Errorf("app %s: %w", app, err)
		}
		if now == was {
			continue
		}
		if !changed {
			after, changed = maps.Clone(m.Lives), true
		}
		if after == nil {
			after = map[string]life{}
		}
		after[app] = now
		if what != "" {
			e := event{Index: m.LastEvent + uint64(len(events)) + 1, Time: c.At, Type: what}
			e.Data = saying("app", app, "why", now.Over, "by", c.Asked.by())
			events = append(events, e)
		}
	}
	if changed && !makeRoom(after, c.At) {
		return nil, false, nil, errManyApps
	}
	return after, changed, events, nil
}

// beat is the app's own word that it lives.
func (l life) beat(c command, known bool) (life, error) {
	switch {
	case !known:
		return life{Owner: c.Owner, Lease: c.Lease, Since: c.At}, nil
	case l.Owner != "" && l.Owner != c.Owner:
		return l, fmt.Errorf("%w: %s", errAppOthers, l.Owner)
	case l.Over != "":
		return l, fmt.Errorf("%w: %s", errAppOver, l.Over)
	}
	l.Owner, l.Lease = c.Owner, c.Lease
	return l, nil
}

// end is an operator's word, the app's own (by its owner), or the clock's, that it is over. What is over stays so: it says once
// why.
func (l life) end(c command, known bool) (life, string, error) {
	switch {
	case c.Owner != "" && !known:
		return l, "", errAppNobody
	case c.Owner != "" && l.Owner != c.Owner:
		return l, "", fmt.Errorf("%w: %s", errAppOthers, cmp.Or(l.Owner, "an operator's"))
	case l.Over != "", c.Do == doLapseApps && !l.beats():
		return l, "", nil
	}
	return life{Owner: l.Owner, Lease: l.Lease, Since: c.At, Over: c.Reason}, evAppEnded, nil
}

// makeRoom forgets the apps that were over long ago, and as many more of those that are over, the oldest first, as are too many.
func makeRoom(lives map[string]life, at time.Time) (fits bool) {
	maps.DeleteFunc(lives, func(_ string, l life) bool { return l.Over != "" && at.Sub(l.Since) > forgetAfter })
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
