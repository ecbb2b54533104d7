package preemption

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// The keys that are asked, under /computeMetadata/v1/instance/. Each notice's id begins with the key that shows it.
// https://cloud.google.com/compute/docs/metadata/getting-live-migration-notice
// https://cloud.google.com/compute/docs/instances/create-use-preemptible
// https://cloud.google.com/compute/docs/instances/graceful-shutdown-overview
const (
	keyPreempted   = "preempted"
	keyMaintenance = "maintenance-event"
	keyStopState   = "shutdown-details/stop-state"
	keyUpcoming    = "upcoming-maintenance"
)

const (
	// gceLookEvery is how often a key is read plainly beside the hanging GET, which may be lost without a sign.
	gceLookEvery = 10 * time.Second
	// gceMissingFor is how long one of the urgent keys must be missing before that withdraws its notice. The server says in
	// so many words when the machine stays after all, and does not remove the key for that. If a server that briefly lacks
	// the keys counted, the node would go back into service in the middle of its thirty seconds, and get thirty new ones a
	// moment later.
	gceMissingFor = time.Minute
	// upcomingEvery is the pause between polls of announcements, which come hours to days ahead.
	upcomingEvery = time.Minute
)

// GCE is the source that listens to Google Compute Engine's metadata server, and to servers that speak like it. It listens
// while Run runs.
//
// Every key has a belief of its own, so that no key can take back what another one says. Only two answers change what is
// believed: 200 with a well-formed body, and 404, each with the header that proves where it came from.
type GCE struct {
	metadata *gceMetadata
	keys     []*gceKey // the most urgent one first
	news     *queue
}

// NewGCE returns a source that asks nothing until Run or Instance is called. Poll is not used: the urgent keys are waited on, not
// polled. An empty Endpoint stands for the server that GCE_METADATA_HOST names, or else for the link-local address. Polled is told
// of hanging GETs too, with a Took of zero: how long one hung says nothing about the service.
func NewGCE(cfg Metadata) (*GCE, error) {
	m, err := newGCEMetadata(cfg)
	if err != nil {
		return nil, err
	}
	g := &GCE{metadata: m, news: newQueue()}
	add := func(k gceKey, read func([]byte, time.Time) ([]Notice, error)) {
		k.belief = newBelief(cfg.Log, SourceGCE, k.path, k.every, 1, read)
		if k.hangs {
			k.belief.missingFor = gceMissingFor
		}
		k.waits = streak{log: k.belief.log, what: "waiting for a change"}
		k.get, k.polled, k.news = m.get, cfg.Polled, g.news
		k.plain = asker[answer]{limit: slowLimit, ask: func(ctx context.Context) (answer, error) { return m.get(ctx, k.target(nil)) }}
		g.keys = append(g.keys, &k)
	}
	stop := &stopping{get: m.get, clock: &m.clock}
	add(gceKey{path: keyPreempted, every: gceLookEvery, hangs: true}, readPreempted)
	add(gceKey{path: keyMaintenance, every: gceLookEvery, hangs: true}, readMaintenanceEvent)
	add(gceKey{path: keyStopState, every: gceLookEvery, hangs: true, ahead: stop.ahead}, stop.read)
	add(gceKey{path: keyUpcoming, query: "alt=json", every: upcomingEvery}, m.clock.by(readUpcoming))
	return g, nil
}

// Run listens at every key until ctx ends, and returns nil then. It reads maintenance-event at once, and so arms it:
// Google warns a machine only if it has read that key since its last maintenance. Run is called once.
func (g *GCE) Run(ctx context.Context) error {
	var listening sync.WaitGroup
	for _, k := range g.keys {
		listening.Go(func() { k.run(ctx) })
	}
	listening.Wait()
	g.metadata.transport.CloseIdleConnections()
	return nil
}

// Next blocks until Run heard something new, or ctx ends; it returns no other error.
func (g *GCE) Next(ctx context.Context) (Notice, error) { return g.news.pop(ctx) }

// Believe takes the notices that were known before a restart: they are not given again, and are withdrawn if the service no
// longer shows them. Call it before Run. It passes over withdrawn notices and those of other sources.
func (g *GCE) Believe(notices ...Notice) {
	for _, k := range g.keys {
		k.belief.believe(notices...)
	}
}

// Health tells for each key when it last gave a definite answer, a notice or none, and what has been wrong since.
func (g *GCE) Health() []Health {
	all := make([]Health, len(g.keys))
	for i, k := range g.keys {
		all[i] = k.belief.health()
	}
	return all
}

// Instance asks what machine this is. It may be called beside Run and Next.
func (g *GCE) Instance(ctx context.Context) (Instance, error) {
	var i Instance
	var preemptible string
	for _, fact := range []struct {
		path string
		into *string
	}{
		{"id", &i.ID},
		{"machine-type", &i.Type}, // projects/N/machineTypes/n2-standard-4
		{"zone", &i.Zone},         // projects/N/zones/us-central1-a
		{"scheduling/preemptible", &preemptible},
	} {
		answer, err := g.metadata.get(ctx, fact.path)
		if err != nil {
			return Instance{}, fmt.Errorf("ask for %s: %w", fact.path, err)
		}
		text := strings.TrimSpace(string(answer.body))
		word := text[strings.LastIndexByte(text, '/')+1:]
		if !isName(word) {
			return Instance{}, fmt.Errorf("ask for %s: answered %.40q, which is no name", fact.path, text)
		}
		*fact.into = word
	}
	switch strings.ToUpper(preemptible) {
	case "TRUE":
		i.LifeCycle = "spot"
	case "FALSE":
		i.LifeCycle = "standard"
	}
	return i, nil
}
