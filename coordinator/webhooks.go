package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/workloads"
)

const (
	// maxWebhooks bounds the webhooks: each has a mark in the log and a goroutine at the leader.
	maxWebhooks = registry.KeptMarks / 2

	// markPace is how often a webhook's mark is written to the log. The next leader posts the events of at most so much time again.
	markPace = 3 * time.Second

	firstRetry   = 200 * time.Millisecond
	longestRetry = 30 * time.Second
	longestWait  = 5 * time.Minute // the longest pause that an answer may ask for

	// complainEvery is how often a webhook that takes nothing has another log line.
	complainEvery = 10 * time.Minute
)

// Webhook is a URL that events are posted to.
type Webhook struct {
	Name        string            `yaml:"name"` // the log keeps its mark under it
	URL         string            `yaml:"url"`
	Types       []string          `yaml:"types"`        // none: all
	HeaderFiles map[string]string `yaml:"header_files"` // a header's name and the file that holds its value
}

func (w Webhook) in(dir string) Webhook {
	files := map[string]string{}
	for name, file := range w.HeaderFiles {
		files[name] = config.In(dir, file)
	}
	w.HeaderFiles = files
	return w
}

// hookName is a name that can stand in a log's line and in a header.
var hookName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func (c *Config) checkWebhooks(report config.Report) {
	if len(c.Webhooks) > maxWebhooks {
		report("webhooks", len(c.Webhooks), fmt.Sprintf("must be %d or fewer", maxWebhooks), "have one of them pass events on")
	}
	seen := map[string]bool{}
	for i, w := range c.Webhooks {
		key := "webhooks[" + strconv.Itoa(i) + "]"
		switch {
		case !hookName.MatchString(w.Name):
			report(key+".name", w.Name, "must be 1 to 64 letters, digits, dots, dashes and underscores", "name it, such as scheduler: the log keeps under it how far it is")
		case seen[w.Name]:
			report(key+".name", w.Name, "must be another webhook's no more", "name each differently")
		}
		seen[w.Name] = true
		if err := (filter{types: w.Types}).check(); err != nil {
			report(key+".types", w.Types, messageOf(err), "list types of events, such as NodeLost")
		}
		workloads.WebhookSettings{URL: w.URL, HeaderFiles: w.HeaderFiles}.Validate(report, key)
	}
}

// hooks post events to all webhooks. No webhook waits for another.
type hooks []*poster

func newHooks(all []Webhook, client *http.Client, l *ledger, do decider, m hooksMetrics, log *slog.Logger) (h hooks) {
	for _, w := range all {
		h = append(h, &poster{
			log: log, ledger: l, do: do, name: w.Name, want: filter{types: w.Types}, metrics: m.of(w.Name),
			hook: workloads.Webhook{URL: w.URL, HeaderFiles: w.HeaderFiles, Client: client},
		})
	}
	return h
}

// run posts while this coordinator leads, until ctx ends.
func (h hooks) run(ctx context.Context) error {
	var posting sync.WaitGroup
	for _, p := range h {
		posting.Go(func() { p.run(ctx) })
	}
	posting.Wait()
	return nil
}

// poster posts events to one webhook: in order, each until it is taken.
type poster struct {
	log     *slog.Logger
	ledger  *ledger
	do      decider
	name    string
	want    filter
	hook    workloads.Webhook
	metrics hookMetrics

	at     api.Place // of the last event that was taken
	marked api.Place // the mark in the log
	due    time.Time // when the mark is to be written; zero: not at all
	fails  failure
}

// failure is a row of posts that a webhook did not take.
type failure struct {
	since time.Time // zero: there is none
	told  time.Time // when it was last logged
	tries int
}

func (p *poster) run(ctx context.Context) {
	for {
		turn := p.ledger.office.turned.Next()
		if term, _ := p.ledger.inOffice(); term != nil {
			term, cancel := context.WithCancel(term)
			stop := context.AfterFunc(ctx, cancel)
			p.serve(term)
			stop()
			cancel()
			p.fails = failure{} // the next leader logs it anew
			p.metrics.behind.Set(0)
		}
		select {
		case <-turn:
		case <-ctx.Done():
			return
		}
	}
}

// serve posts until ctx, a term as the leader, ends.
func (p *poster) serve(ctx context.Context) {
	p.begin()
	r := p.ledger.reader(p.at)
	for ctx.Err() == nil {
		events, news := r.more()
		if len(events) > 0 {
			if !p.post(ctx, events) {
				return
			}
			p.at = r.at
			p.mark()
			continue
		}
		var due <-chan time.Time
		if !p.due.IsZero() {
			due = time.After(time.Until(p.due))
		}
		select {
		case <-news:
		case <-due:
			p.mark()
		case <-ctx.Done():
		}
	}
}

// begin reads the webhook's mark. A new webhook gets the events from now on.
func (p *poster) begin() {
	p.ledger.view(func(m *registry.Registry) {
		was, known := m.Hooks[p.name]
		p.at, p.marked, p.due = was.Place, was.Place, time.Time{}
		if !known {
			p.at, p.due = api.Place{Index: m.LastEvent}, time.Now()
		}
	})
	if !p.due.IsZero() {
		p.write()
	}
}

// mark writes the webhook's mark once that is due.
func (p *poster) mark() {
	switch now := time.Now(); {
	case p.at == p.marked && p.due.IsZero(): // nothing to write; a new webhook's first mark has a due time
	case p.due.IsZero():
		p.due = now.Add(markPace)
	case !now.Before(p.due):
		p.write()
	}
}

func (p *poster) write() {
	_, err := p.do(registry.Command{Do: registry.DoMark, Mark: &registry.Mark{Hook: p.name, Place: p.at}})
	switch {
	case err == nil:
		p.marked, p.due = p.at, time.Time{}
		return
	case !errors.Is(err, errFollows) && !errors.Is(err, errDeposed):
		p.log.Warn("cannot write to the log how far a webhook is: it is tried again", "webhook", p.name, "err", err)
	}
	p.due = time.Now().Add(markPace)
}

// post returns true once the events are taken, and false if ctx ends before.
func (p *poster) post(ctx context.Context, events []*told) bool {
	var all []api.EventJSON
	for _, e := range events {
		if p.want.wants(e) {
			all = append(all, api.EventToJSON(eventTo(e.Event)))
		}
	}
	if len(all) == 0 {
		return true
	}
	body, err := json.Marshal(all)
	if err != nil {
		p.log.Error("events cannot be written and are left out", "webhook", p.name, "err", err)
		return true
	}
	key := fmt.Sprintf("%s/%s-%s", p.name, events[0].Place(), events[len(events)-1].Place())
	for pause := firstRetry; ; pause = min(2*pause, longestRetry) {
		after, err := p.hook.Post(ctx, body, key)
		if err == nil {
			p.taken()
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		p.refused(err)
		p.mark()
		if !await.Sleep(ctx, max(pause/2+rand.N(pause), min(after, longestWait))) {
			return false
		}
	}
}

func (p *poster) refused(err error) {
	now := time.Now()
	p.metrics.failures.Inc()
	behind := p.behind()
	p.metrics.behind.Set(float64(behind))
	if p.fails.tries++; p.fails.tries == 1 {
		p.fails.since, p.fails.told = now, now
		p.log.Warn("a webhook does not take events: they wait for it", "webhook", p.name, "url", p.hook.String(), "after", p.at.String(), "err", err)
	}
	if now.Sub(p.fails.told) < complainEvery {
		return
	}
	p.fails.told = now
	words := []any{"webhook", p.name, "url", p.hook.String(), "took", now.Sub(p.fails.since).Round(time.Second), "tries", p.fails.tries, "events", behind, "err", err}
	if behind > registry.KeptEvents {
		p.log.Error("a webhook still does not take events, and has missed the oldest, which are kept no longer: it will be told of a Gap", words...)
		return
	}
	p.log.Warn("a webhook still does not take events: the newest "+strconv.Itoa(registry.KeptEvents)+" wait for it", words...)
}

// behind is how many events of the log the webhook has not taken yet, or has missed.
func (p *poster) behind() (events uint64) {
	p.ledger.view(func(m *registry.Registry) { events = m.LastEvent - min(p.at.Index, m.LastEvent) })
	return events
}

func (p *poster) taken() {
	if p.fails.tries > 0 {
		p.log.Info("a webhook takes events again", "webhook", p.name, "took", time.Since(p.fails.since).Round(time.Second), "tries", p.fails.tries)
	}
	p.fails = failure{}
	p.metrics.last.SetToCurrentTime()
	p.metrics.behind.Set(0)
}
