package preemption

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// EC2Config is what an EC2 source needs to know.
type EC2Config struct {
	Metadata
	Lifecycle   LifecycleHook
	AutoScaling string // a URL in place of the service's own address; for tests

	// AllowV1 allows asking the service without a token while none is to be had, as in a container one hop too far away.
	// Version 1 answers anybody who can make this host send a GET.
	AllowV1 bool
}

// EC2 is the source that polls the EC2 instance metadata service for spot interruptions, rebalance recommendations,
// scheduled events, and the state that its Auto Scaling group wants the instance in.
//
// Only two answers change what it believes: 200 with a well-formed body, and 404. Everything else (another status, a
// hang, a refused connection, nonsense) leaves the belief, and the pace, as they were.
//
// It asks all paths on every instance, also those about spot: a 404 costs a millisecond, and an instance with a life cycle
// that is not known here might be interrupted too. Hosts do not spread their polls: the service is on the host itself, so a
// fleet does not meet there.
type EC2 struct {
	poller
	metadata  *metadata
	lifecycle lifecycle
}

// NewEC2 returns a source that asks nothing until Next is called.
func NewEC2(cfg EC2Config) (*EC2, error) {
	m, err := newMetadata(cfg.Metadata, cfg.AllowV1)
	if err != nil {
		return nil, err
	}
	if cfg.AllowV1 {
		cfg.Log.Warn("version 1 of the metadata service is allowed: it is asked without a token while none is to be had")
	}
	every := cfg.every()
	at := func(path string, usual time.Duration, read func([]byte, time.Time) ([]Notice, error)) *polledPath {
		return &polledPath{
			belief: newBelief(cfg.Log, SourceEC2, path, max(usual, every), goneAfter, read),
			asker: asker[answer]{limit: slowLimit, ask: func(ctx context.Context) (answer, error) {
				body, found, err := m.get(ctx, path)
				return answer{body: body, found: found}, err
			}},
		}
	}
	return &EC2{
		metadata:  m,
		lifecycle: lifecycle{LifecycleHook: cfg.Lifecycle, endpoint: cfg.AutoScaling, metadata: m, dial: cfg.Dial},
		poller: poller{
			every: every, rest: m.session.renew, idle: m.close, polled: cfg.Polled,
			paths: []*polledPath{
				at(pathAction, every, m.session.clock.by(readAction)),
				at(pathTarget, targetEvery, cfg.Lifecycle.readTarget),
				at(pathRebalance, rebalanceEvery, readRebalance),
				at(pathScheduled, scheduledEvery, m.session.clock.by(readScheduled)),
			},
		},
	}, nil
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
		word, err := e.metadata.word(ctx, fact.path)
		if err != nil && !errors.Is(err, errNotSaid) {
			return Instance{}, err
		}
		*fact.into = word
	}
	return i, nil
}

// errNotSaid is the error for a 404 to a question other than that for a notice.
var errNotSaid = errors.New("the metadata service does not say")

// text asks for the text at a path.
func (m *metadata) text(ctx context.Context, path string) (string, error) {
	body, found, err := m.get(ctx, path)
	if err == nil && !found {
		err = errNotSaid
	}
	if err != nil {
		return "", fmt.Errorf("ask for %s: %w", path, err)
	}
	return strings.TrimSpace(string(body)), nil
}

// word asks for a name at a path, as AWS writes names.
func (m *metadata) word(ctx context.Context, path string) (string, error) {
	word, err := m.text(ctx, path)
	if err == nil && !isName(word) {
		return "", fmt.Errorf("ask for %s: answered %.40q, which is no name", path, word)
	}
	return word, err
}

// isName reports whether a text can be a name from a cloud, or is empty.
func isName(text string) bool { return len(text) <= 128 && !strings.ContainsFunc(text, notOfAWord) }

// notOfAWord reports whether a rune appears in no such name.
func notOfAWord(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._", r))
}
