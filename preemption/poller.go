package preemption

import (
	"context"
	"sync"
	"time"
)

// poller asks a metadata service, each path at its own interval, and weighs the answers.
type poller struct {
	paths  []*polledPath // the most urgent one first
	every  time.Duration
	beside func(ctx context.Context) // runs beside a poll, in its time; may be nil
	rest   func(ctx context.Context) // runs between two polls, bounded by ctx; may be nil
	idle   func()                    // closes idle connections
	polled func(Poll)

	due  time.Time // of the next poll
	news []Notice  // not yet returned by Next
}

// polledPath is one path: what is asked there, and what is believed of it.
type polledPath struct {
	*belief
	asker[answer]
}

// Believe takes the notices that were known before a restart: they are not given again, and are withdrawn if the service no
// longer shows them. Call it before the first Next. It passes over withdrawn notices and those of other sources.
func (p *poller) Believe(notices ...Notice) {
	for _, path := range p.paths {
		path.believe(notices...)
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
			for _, path := range p.paths {
				path.giveUp()
			}
			p.idle()
			return Notice{}, err
		}
		start := time.Now()
		p.due = start.Add(p.every) // from its start: a poll that hangs does not delay the next
		p.ask(ctx, start)
	}
}

// ask makes one poll of all paths that are due, side by side, so that a path that hangs does not delay the others. Each has
// askLimit; an answer that comes later is weighed in the poll in which it comes.
func (p *poller) ask(ctx context.Context, start time.Time) {
	poll, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	type heard struct {
		*polledPath
		reply[answer]
		at   time.Time
		took time.Duration
	}
	var all []*heard
	var asking sync.WaitGroup
	if p.beside != nil {
		asking.Go(func() { p.beside(poll) })
	}
	for _, path := range p.paths {
		if start.Before(path.due) {
			continue
		}
		h := &heard{polledPath: path}
		all = append(all, h)
		asking.Go(func() {
			h.answer, h.took, h.err = h.get(poll)
			h.at = time.Now()
		})
	}
	asking.Wait()
	if ctx.Err() != nil {
		return // told to stop: a missing answer says nothing
	}
	for _, h := range all {
		h.due = start.Add(h.belief.every)
		news, err := h.hear(h.answer.body, h.answer.found, h.err, h.at)
		p.news = append(p.news, news...)
		if p.polled != nil {
			p.polled(Poll{Source: h.source, Path: h.path, Result: result(err), Took: h.took})
		}
	}
}

// Health tells for each path when it last gave a definite answer, a notice or none, and what has been wrong since.
func (p *poller) Health() []Health {
	all := make([]Health, len(p.paths))
	for i, path := range p.paths {
		all[i] = path.health()
	}
	return all
}
