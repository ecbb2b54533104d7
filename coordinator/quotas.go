package coordinator

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// What a node says may have to be written down: that it is another machine now, that it leaves, that it stays after all, what became of its
// blocks. Whoever has its key could say such things as fast as the log takes them, and so push out of it all that happened in the fleet.

const (
	// writesAtOnce and writesEvery bound what is written down for one node. A machine that is started again and again, with nothing
	// kept, makes a write or two each time; 16,384 events that are kept last for half a day then.
	writesAtOnce = 100
	writesEvery  = 5 * time.Second

	// appWritesEvery is what one thing costs the certificate of an app: many apps share one, and each begins and ends.
	appWritesEvery = time.Second

	// joinEvery is what one machine that joins costs its token: a fleet of ten thousand may begin at once.
	joinEvery = writesEvery / 100

	// quotasSwept is how many nodes are remembered before those are forgotten that wrote nothing lately.
	quotasSwept = 1024
)

// tooOften is why a node's word is not taken.
type tooOften struct{ node string }

func (t tooOften) Error() string {
	return fmt.Sprintf("node %s changes too often: it may %d times at once, and then once each %s: look in its log why it does; if somebody else has its key, lifeboat revoke node %[1]s",
		t.node, writesAtOnce, writesEvery)
}

var errManyJoin = fmt.Errorf("more machines join with this token than may, %d at once and then one each %s: again later; if it got into the wrong hands, lifeboat token revoke", ((writesAtOnce-1)*writesEvery/joinEvery)+1, joinEvery)

// quotas are how much may be written down for each node, by the name in its certificate; for an app's certificate by role and name, and for a token by its id.
type quotas struct {
	mu    sync.Mutex           // guards what follows
	until map[string]time.Time // when it may write writesAtOnce times again
	sweep int                  // how many there may be before they are gone through
}

// take says whether there may be one more, which costs so much.
func (q *quotas) take(node string, cost time.Duration, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	until := q.until[node]
	if until.Before(now) {
		until = now
	}
	if until.Sub(now) > (writesAtOnce-1)*writesEvery {
		return false
	}
	if q.until == nil {
		q.until, q.sweep = map[string]time.Time{}, quotasSwept
	}
	q.until[node] = until.Add(cost)
	if len(q.until) > q.sweep {
		for name, until := range q.until {
			if until.Before(now) {
				delete(q.until, name)
			}
		}
		q.sweep = max(quotasSwept, 2*len(q.until))
	}
	return true
}

// giveBack takes one back: nothing was written.
func (q *quotas) giveBack(node string, cost time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.until[node] = q.until[node].Add(-cost)
}

// spend counts one against the node.
func (s *membership) spend(node string) error {
	if s.quotas.take(node, writesEvery, time.Now()) {
		return nil
	}
	if times := s.denials.count("too often "+node, time.Now()); times > 0 {
		s.log.Warn("a node changes too often: is it started again and again, or does somebody else have its key?", "node", node, "times", times)
	}
	return tooOften{node}
}

// doFor decides what a node gives rise to. What changes nothing is not counted.
func (s *membership) doFor(node string, c registry.Command) ([]registry.Event, error) {
	if err := s.spend(node); err != nil {
		return nil, err
	}
	events, err := s.do(c)
	if err == nil && len(events) == 0 || undecided(err) {
		s.quotas.giveBack(node, writesEvery)
	}
	return events, err
}

// doForApps decides what the certificate of an app says of one. An operator's may say as much as it likes.
func (f *fleet) doForApps(by certs.Name, c registry.Command) error {
	if by.Role != certs.RoleApp || f.saidBefore(c) {
		_, err := f.do(c)
		return appStatus(err)
	}
	if who := by.String(); !f.quotas.take(who, appWritesEvery, time.Now()) {
		if times := f.denials.count("too often "+who, time.Now()); times > 0 {
			f.log.Warn("a certificate begins and ends too many apps: does somebody else have its key?", "name", who, "times", times)
		}
		return status.Errorf(codes.ResourceExhausted, "the certificate of %s begins and ends too many apps: it may %d times at once, and then once each %s: again later; if somebody else has its key, lifeboat revoke %[1]s",
			who, ((writesAtOnce-1)*writesEvery/appWritesEvery)+1, appWritesEvery)
	}
	_, err := f.do(c)
	if undecided(err) {
		f.quotas.giveBack(by.String(), appWritesEvery)
	}
	return appStatus(err)
}

// saidBefore reports whether a word of an app is what is known of it, as most beats are.
func (f *fleet) saidBefore(c registry.Command) (known bool) {
	f.ledger.view(func(m *registry.Registry) {
		l := m.Lives[c.Apps[0]]
		known = c.Do == registry.DoBeatApp && l.Beats() && l.Owner == c.Owner && l.Lease == c.Lease
	})
	return known
}

// unlessOften is for a beat, which is answered all the same: what it says is written down with a later one.
func unlessOften(err error) error {
	if _, often := errors.AsType[tooOften](err); often {
		return nil
	}
	return err
}
