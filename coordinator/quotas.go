package coordinator

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// Some messages of a node are written to the log: that it is another machine now, that it leaves, that it stays after all, what became of
// its blocks. A thief of its key could send them as fast as the log takes them, and so push all other events out of the log. Quotas
// bound that.

const (
	// writesAtOnce and writesEvery bound the writes to the log for one node. A machine that is started again and again, with an empty disk,
	// causes a write or two each time; the 16,384 kept events then reach back half a day.
	writesAtOnce = 100
	writesEvery  = 5 * time.Second

	// appWritesEvery is the cost of one write for the certificate of apps: many apps share one, and each begins and ends.
	appWritesEvery = time.Second

	// joinEvery is the cost of one joining machine for its token: a fleet of ten thousand may begin at once.
	joinEvery = writesEvery / 100

	// quotasSwept is how many names are remembered before names without recent writes are dropped.
	quotasSwept = 1024
)

// tooOften refuses a node's message because its quota is used up.
type tooOften struct{ node string }

func (t tooOften) Error() string {
	return fmt.Sprintf("node %s changes too often: it may %d times at once, and then once each %s: look in its log why it does; if somebody else has its key, lifeboat revoke node %[1]s",
		t.node, writesAtOnce, writesEvery)
}

var errManyJoin = fmt.Errorf("more machines join with this token than may, %d at once and then one each %s: again later; if it got into the wrong hands, lifeboat token revoke", ((writesAtOnce-1)*writesEvery/joinEvery)+1, joinEvery)

// quotas bound the writes to the log by name: for a node that in its certificate, for an app's certificate role and name, for a token its
// id.
type quotas struct {
	log     *slog.Logger
	ledger  *ledger
	denials *denials
	do      decider

	mu    sync.Mutex           // guards what follows
	until map[string]time.Time // when the name has its whole quota again: each write moves that by its cost
	sweep int                  // how many names there may be before old ones are dropped
}

// take reports whether there may be one more write of that cost, and counts it.
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

// giveBack takes back a write that was counted and not made.
func (q *quotas) giveBack(node string, cost time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.until[node] = q.until[node].Add(-cost)
}

// spend counts a write against the node's quota, or refuses it.
func (q *quotas) spend(node string) error {
	if q.take(node, writesEvery, time.Now()) {
		return nil
	}
	if times := q.denials.count("too often "+node, time.Now()); times > 0 {
		q.log.Warn("a node changes too often: is it started again and again, or does somebody else have its key?", "node", node, "times", times)
	}
	return tooOften{node}
}

// doFor decides a command that a node causes, within the node's quota. A command that changes nothing is not counted.
func (q *quotas) doFor(node string, c registry.Command) ([]registry.Event, error) {
	if err := q.spend(node); err != nil {
		return nil, err
	}
	events, err := q.do(c)
	if err == nil && len(events) == 0 || undecided(err) {
		q.giveBack(node, writesEvery)
	}
	return events, err
}

// doForApps decides a command about an app, within the quota of the app's certificate. Operators have no quota.
func (q *quotas) doForApps(by certs.Name, c registry.Command) error {
	if by.Role != certs.RoleApp || q.saidBefore(c) {
		_, err := q.do(c)
		return appStatus(err)
	}
	if who := by.String(); !q.take(who, appWritesEvery, time.Now()) {
		if times := q.denials.count("too often "+who, time.Now()); times > 0 {
			q.log.Warn("a certificate begins and ends too many apps: does somebody else have its key?", "name", who, "times", times)
		}
		return status.Errorf(codes.ResourceExhausted, "the certificate of %s begins and ends too many apps: it may %d times at once, and then once each %s: again later; if somebody else has its key, lifeboat revoke %[1]s",
			who, ((writesAtOnce-1)*writesEvery/appWritesEvery)+1, appWritesEvery)
	}
	_, err := q.do(c)
	if undecided(err) {
		q.giveBack(by.String(), appWritesEvery)
	}
	return appStatus(err)
}

// saidBefore reports whether a command says only what is known of the app already, as most beats do.
func (q *quotas) saidBefore(c registry.Command) (known bool) {
	q.ledger.view(func(m *registry.Registry) {
		l := m.Lives[c.Apps[0]]
		known = c.Do == registry.DoBeatApp && l.Beats() && l.Owner == c.Owner && l.Lease == c.Lease
	})
	return known
}

// unlessOften drops a refusal by quota. It is for beats, which are answered all the same: a later beat repeats what was not written.
func unlessOften(err error) error {
	if _, often := errors.AsType[tooOften](err); often {
		return nil
	}
	return err
}
