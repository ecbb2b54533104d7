package preemption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
)

// What is asked, under /latest/meta-data/. The paths serve as the notices' ids: each holds one notice or none.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
const (
	pathAction    = "spot/instance-action"
	pathRebalance = "events/recommendations/rebalance"
)

const (
	// rebalanceEvery is AWS's own advice for polling. Advice that comes minutes to hours ahead is in no hurry; the
	// notice itself comes two minutes ahead, and each second of it is a second of sending.
	rebalanceEvery = 5 * time.Second

	// staleAfter is how far in the past a notice may lie that we see for the first time. When a reclaim falls through,
	// the service may go on showing its time for ever.
	staleAfter = time.Minute

	// goneAfter is how many polls in a row must answer "none" before a notice counts as withdrawn.
	goneAfter = 2
)

// EC2Config is what an EC2 source needs to know.
type EC2Config struct {
	Endpoint string        // empty: AWS_EC2_METADATA_SERVICE_ENDPOINT, or else http://169.254.169.254
	Poll     time.Duration // how often spot/instance-action is asked; 0: each second
	Log      *slog.Logger

	// Dial replaces the network. Nil: TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// EC2 is the source that polls the EC2 instance metadata service for spot interruptions and rebalance recommendations.
//
// Only two answers change what it believes: 200 with a well-formed body, and 404. Everything else (another status, a
// hang, a refused connection, nonsense) leaves the belief, and the pace, as they were.
type EC2 struct {
	metadata *metadata
	beliefs  []*belief // the urgent one first
	log      *slog.Logger
	poll     time.Duration
	due      time.Time // of the next poll

	mu       sync.Mutex // guards what follows
	lastGood time.Time
	lastErr  string
}

// NewEC2 returns a source that asks nothing until Next is called.
func NewEC2(cfg EC2Config) (*EC2, error) {
	m, err := newMetadata(cfg.Endpoint, cfg.Dial)
	if err != nil {
		return nil, err
	}
	e := &EC2{metadata: m, log: cfg.Log, poll: cfg.Poll}
	if e.poll <= 0 {
		e.poll = time.Second
	}
	for _, b := range []*belief{
		{path: pathAction, every: e.poll, read: readAction},
		{path: pathRebalance, every: max(rebalanceEvery, e.poll), read: readRebalance},
	} {
		b.log = cfg.Log.With("source", SourceEC2, "path", b.path)
		b.trouble = streak{log: b.log, what: "metadata service"}
		e.beliefs = append(e.beliefs, b)
	}
	return e, nil
}

// Believe tells what was known before a restart, so that it is not given again, and is withdrawn if the service no
// longer shows it. It is called before the first Next. Notices of other sources, and withdrawn ones, are passed over.
func (e *EC2) Believe(notices ...Notice) {
	for _, n := range notices {
		for _, b := range e.beliefs {
			if n.Source == SourceEC2 && n.ID == b.path && !n.Withdrawn {
				b.notice = n
			}
		}
	}
}

// Next polls until the service says something new, or ctx ends; it returns no other error.
func (e *EC2) Next(ctx context.Context) (Notice, error) {
	for {
		if err := sleepUntil(ctx, e.due); err != nil {
			e.metadata.transport.CloseIdleConnections()
			return Notice{}, err
		}
		start := time.Now()
		e.due = start.Add(e.poll) // from its start: a poll that hangs does not delay the next
		if n, news := e.ask(ctx, start); news {
			return n, nil
		}
	}
}

// Health tells when spot/instance-action was last answered, by a notice or by none, and what ails it since; "" when
// nothing does.
func (e *EC2) Health() (lastGood time.Time, lastErr string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lastGood, e.lastErr
}

// ask makes one poll of all that is due, within askLimit, and returns the first news. What it did not get to stays due.
func (e *EC2) ask(ctx context.Context, start time.Time) (Notice, bool) {
	poll, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	for _, b := range e.beliefs {
		if start.Before(b.due) {
			continue
		}
		if poll.Err() != nil {
			break
		}
		body, found, err := e.metadata.get(poll, b.path)
		if ctx.Err() != nil {
			break // told to stop: that the answer did not come says nothing
		}
		b.due = start.Add(b.every)
		n, news, err := b.hear(body, found, err)
		if b.path == pathAction {
			e.note(err)
		}
		if news {
			return n, true
		}
	}
	return Notice{}, false
}

func (e *EC2) note(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.lastErr = err.Error()
		return
	}
	e.lastGood, e.lastErr = time.Now(), ""
}

// belief is what the service was last heard to say at one path.
type belief struct {
	path    string
	every   time.Duration
	read    func(body []byte) (kind Kind, at time.Time, err error)
	log     *slog.Logger
	trouble streak

	due     time.Time
	notice  Notice    // in force; no kind: none is
	gone    int       // answers "none" in a row while a notice is in force
	ignored time.Time // the stale time that was logged
}

// hear weighs one answer, and returns a notice when that is news. The error is why the answer counts for nothing.
func (b *belief) hear(body []byte, found bool, err error) (n Notice, news bool, _ error) {
	var kind Kind
	var at time.Time
	if err == nil && found {
		kind, at, err = b.read(body)
	}
	if err != nil {
		b.gone = 0 // what we do not know is no second "none"
		b.trouble.failed(err)
		return Notice{}, false, err
	}
	b.trouble.worked()
	if !found {
		n, news = b.absent()
	} else {
		b.gone = 0
		n, news = b.present(kind, at, time.Now())
	}
	return n, news, nil
}

func (b *belief) absent() (Notice, bool) {
	if b.notice.Kind == "" {
		return Notice{}, false
	}
	if b.gone++; b.gone < goneAfter {
		return Notice{}, false
	}
	n := b.notice
	n.Withdrawn, n.Reason = true, "the metadata service no longer shows "+b.path
	b.notice, b.gone = Notice{}, 0
	return n, true
}

func (b *belief) present(kind Kind, at, now time.Time) (Notice, bool) {
	stale := !at.IsZero() && now.Sub(at) > staleAfter
	deadline := at
	if kind == KindHibernate {
		deadline = now // it begins at once, whatever the time says
	}
	switch known := b.notice; {
	case known.Kind == "" && stale:
		if !b.ignored.Equal(at) {
			b.log.Warn("stale notice ignored: its time is past, unless this host's clock is ahead", "kind", kind, "time", at)
			b.ignored = at
		}
		return Notice{}, false
	case known.Kind == "":
		b.notice = Notice{Source: SourceEC2, ID: b.path, Kind: kind, Deadline: deadline, SeenAt: now, Reason: reason(kind)}
	default:
		if kind != known.Kind {
			b.notice.Kind, b.notice.Reason = kind, reason(kind)
		}
		// Only an earlier deadline is news. AWS's own mock shows "two minutes from now" at each poll, for ever.
		if !stale && !deadline.IsZero() && (known.Deadline.IsZero() || known.Deadline.Sub(deadline) > slack) {
			b.notice.Deadline = deadline
		}
		if b.notice == known {
			return Notice{}, false
		}
	}
	return b.notice, true
}

func reason(kind Kind) string {
	if kind == KindRebalance {
		return "EC2 rebalance recommendation"
	}
	return "EC2 spot interruption: " + string(kind)
}

// readAction reads {"action": "terminate", "time": "2017-09-18T08:22:00Z"}.
func readAction(body []byte) (Kind, time.Time, error) {
	var doc struct{ Action, Time string }
	if err := json.Unmarshal(body, &doc); err != nil {
		return "", time.Time{}, fmt.Errorf("read %s: %w", pathAction, err)
	}
	switch kind := Kind(doc.Action); kind {
	case KindTerminate, KindStop, KindHibernate:
		at, err := readTime(doc.Time)
		if err != nil {
			return "", time.Time{}, fmt.Errorf("read %s: %w", pathAction, err)
		}
		return kind, at, nil
	default:
		return "", time.Time{}, fmt.Errorf("read %s: action %q is not known", pathAction, doc.Action)
	}
}

// readRebalance reads {"noticeTime": "2020-10-27T08:22:00Z"}: when the advice was given. It names no deadline.
func readRebalance(body []byte) (Kind, time.Time, error) {
	var doc struct{ NoticeTime string }
	if err := json.Unmarshal(body, &doc); err != nil {
		return "", time.Time{}, fmt.Errorf("read %s: %w", pathRebalance, err)
	}
	if _, err := readTime(doc.NoticeTime); err != nil {
		return "", time.Time{}, fmt.Errorf("read %s: %w", pathRebalance, err)
	}
	return KindRebalance, time.Time{}, nil
}

func readTime(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err == nil && at.IsZero() {
		err = errors.New("the time is empty") // it would pass for a deadline that is not known
	}
	return at, err
}

// Instance is what the metadata service says of this machine. What it does not say is empty.
type Instance struct {
	ID        string // i-0123456789abcdef0
	Type      string // r5.4xlarge
	Zone      string // us-east-1a
	LifeCycle string // spot, on-demand
}

// Instance asks what machine this is. It may be called beside Next.
func (e *EC2) Instance(ctx context.Context) (Instance, error) {
	var i Instance
	for _, fact := range []struct {
		path string
		into *string
	}{
		{"instance-id", &i.ID},
		{"instance-type", &i.Type},
		{"placement/availability-zone", &i.Zone},
		{"instance-life-cycle", &i.LifeCycle},
	} {
		one, cancel := context.WithTimeout(ctx, askLimit)
		body, found, err := e.metadata.get(one, fact.path)
		cancel()
		if err != nil {
			return Instance{}, fmt.Errorf("ask for %s: %w", fact.path, err)
		}
		if !found {
			continue
		}
		word := strings.TrimSpace(string(body))
		if len(word) > 128 || strings.ContainsFunc(word, notOfAWord) {
			return Instance{}, fmt.Errorf("ask for %s: answered %.40q, which is no name", fact.path, word)
		}
		*fact.into = word
	}
	return i, nil
}

// notOfAWord finds what no name that AWS gives has in it.
func notOfAWord(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._", r))
}
