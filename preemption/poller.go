package preemption

import (
	"context"
	"time"
)

// poller asks a metadata service, path by path and as often as each wants it, and weighs the answers.
type poller struct {
	beliefs []*belief // the urgent one first
	every   time.Duration
	get     func(ctx context.Context, path string) (body []byte, found bool, err error)
	rest    func(ctx context.Context) // what is done between two polls, bounded by ctx; may be nil
	idle    func()                    // lets the connections go
	polled  func(Poll)

	due  time.Time // of the next poll
	news []Notice  // heard and not yet given
}

// Believe tells what was known before a restart, so that it is not given again, and is withdrawn if the service no
// longer shows it. It is called before the first Next. Notices of other sources, and withdrawn ones, are passed over.
func (p *poller) Believe(notices ...Notice) {
	for _, b := range p.beliefs {
		b.believe(notices...)
	}
}

// Next polls until the service says something new, or ctx ends; it returns no other error.
func (p *poller) Next(ctx context.Context) (Notice, error) {
	for {
		if len(p.news) > 0 {
			n := p.news[0]
			p.news = p.news[1:]
			return n, nil
		}
		if p.rest != nil {
			rest, cancel := context.WithDeadline(ctx, p.due)
			p.rest(rest)
			cancel()
		}
		if err := sleepUntil(ctx, p.due); err != nil {
			p.idle()
			return Notice{}, err
		}
		start := time.Now()
		p.due = start.Add(p.every) // from its start: a poll that hangs does not delay the next
		p.ask(ctx, start)
	}
}

// ask makes one poll of all that is due, within askLimit. What it did not get to stays due.
func (p *poller) ask(ctx context.Context, start time.Time) {
	poll, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	for _, b := range p.beliefs {
		if start.Before(b.due) {
			continue
		}
		if poll.Err() != nil {
			return
		}
		began := time.Now()
		body, found, err := p.get(poll, b.path)
		if ctx.Err() != nil {
			return // told to stop: that the answer did not come says nothing
		}
		now := time.Now()
		b.due = start.Add(b.every)
		news, err := b.hear(body, found, err, now)
		p.news = append(p.news, news...)
		if p.polled != nil {
			p.polled(Poll{Source: b.source, Path: b.path, Result: result(err), Took: now.Sub(began)})
		}
	}
}

// Health tells, for each path, when it was last answered, by a notice or by none, and what ails it since.
func (p *poller) Health() []Health {
	all := make([]Health, len(p.beliefs))
	for i, b := range p.beliefs {
		all[i] = b.health()
	}
	return all
}
