package preemption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// startLimit is how long one attempt to acknowledge an event may take. Nothing waits for it; success may free the machine
// some minutes earlier.
const startLimit = 30 * time.Second

// Release lets the event of a notice begin early, where the configuration says so. That starts it for every machine that the
// event names, so the newest list must name this machine alone, and the event must not have started. Release tries until ctx
// ends; the error is why it gave up.
func (a *Azure) Release(ctx context.Context, n Notice) error {
	id, ours := strings.CutPrefix(n.ID, pathEvents+"/")
	if !a.cfg.Acknowledge || n.Source != SourceAzure || !ours || !emptiedFor(n.Kind) {
		return nil
	}
	for {
		err := a.acknowledge(ctx, id)
		if err == nil {
			return nil
		}
		if s, ok := errors.AsType[*statusError](err); ok && s.Code == http.StatusBadRequest {
			return fmt.Errorf("acknowledge event %s: %w", id, err) // asking again gets the same answer
		}
		if sleepUntil(ctx, time.Now().Add(retryAfter)) != nil {
			return fmt.Errorf("acknowledge event %s: %w", id, err)
		}
	}
}

// acknowledge starts the event with the id if it may be started for this machine alone.
func (a *Azure) acknowledge(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	name, _ := a.ownName()
	if name == "" {
		if _, err := a.compute(ctx); err != nil {
			return err
		}
		name, _ = a.ownName()
	}
	body, err := a.ask(ctx, http.MethodGet, azureEvents, nil)
	if err != nil {
		return err
	}
	events, err := readAzureEvents(body, name)
	if err != nil {
		return fmt.Errorf("read %s: %w", pathEvents, err)
	}
	at := slices.IndexFunc(events, func(e azureEvent) bool { return e.id == id })
	if at < 0 {
		return nil // it is over
	}
	e := events[at]
	switch {
	case e.started:
		return nil
	case !emptiedFor(e.kind):
		return nil
	case !e.alone:
		a.cfg.Log.Info("event is not acknowledged: it is for other machines too", "event", id, "kind", e.kind)
		return nil
	}
	say, err := json.Marshal(map[string][]map[string]string{"StartRequests": {{"EventId": id}}})
	if err != nil {
		return err
	}
	if _, err := a.ask(ctx, http.MethodPost, azureEvents, say); err != nil {
		return err
	}
	a.cfg.Log.Info("event acknowledged: it may begin before its time", "event", id, "kind", e.kind)
	return nil
}

// emptiedFor tells whether, for an event of this kind, an empty node may as well go early. To hurry a reclaim gains nothing
// here, a pause needs no empty node, and an event of an unknown kind is not ours to start.
func emptiedFor(k Kind) bool { return k == KindTerminate || k == KindRedeploy || k == KindReboot }
