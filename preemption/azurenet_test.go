package preemption

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/preemption/azurefake"
)

var azureMachine = azurefake.Machine{
	Name: "pool_24", ID: "02aab8a4-74ef-476e-8182-f6d2ba4166a6", Size: "Standard_E8ds_v5", Location: "westeurope", Zone: "2", Priority: "Spot",
}

// azureCloud is a pretend metadata service with an Azure source that listens to it, in one bubble.
type azureCloud struct {
	*azurefake.Service
	line
	cfg    AzureConfig
	source *Azure

	trouble atomic.Pointer[http.HandlerFunc] // answers in the service's place
	polls   atomic.Int64                     // for events
	names   atomic.Int64                     // questions for the machine's name
	open    atomic.Int64                     // questions for events that wait for an answer
}

// azureBubble runs a test in a bubble with a cloud; the source listens from the call of listen on.
func azureBubble(t *testing.T, cfg AzureConfig, test func(t *testing.T, c *azureCloud)) {
	synctest.Test(t, func(t *testing.T) {
		c := &azureCloud{Service: azurefake.New(azureMachine)}
		c.begin(t, &http.Server{Handler: c}, func() { c.source.client.CloseIdleConnections() })
		if cfg.Log == nil {
			cfg.Log = slog.New(slog.DiscardHandler)
		}
		if cfg.Uptime == nil {
			cfg.Uptime = func() time.Duration { return 24 * time.Hour }
		}
		cfg.Endpoint, cfg.Dial = "http://metadata.test", c.dial
		c.cfg = cfg
		c.restart(t)
		test(t, c)
	})
}

// restart replaces the source by a new one, which knows nothing.
func (c *azureCloud) restart(t *testing.T) {
	t.Helper()
	source, err := NewAzure(c.cfg)
	if err != nil {
		t.Fatal(err)
	}
	source.client.Transport.(*http.Transport).ReadBufferSize = azureBodyLimit // endless bodies end sooner
	c.source = source
}

func (c *azureCloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/metadata/scheduledevents":
		c.polls.Add(1)
		c.open.Add(1)
		defer c.open.Add(-1)
	case "/metadata/instance/compute":
		c.names.Add(1)
	}
	if trouble := c.trouble.Load(); trouble != nil {
		(*trouble)(w, r)
		return
	}
	c.Service.ServeHTTP(w, r)
}

// show makes the service answer every question with this list.
func (c *azureCloud) show(incarnation int, events string) {
	c.failWith(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"DocumentIncarnation":%d,"Events":[%s]}`, incarnation, events)
	})
}

// onlyCompute answers questions for events as usual, and those for the machine's name with h.
func (c *azureCloud) onlyCompute(h http.HandlerFunc) {
	c.failWith(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metadata/instance/compute" {
			h(w, r)
			return
		}
		c.Service.ServeHTTP(w, r)
	})
}

func (c *azureCloud) failWith(h http.HandlerFunc) { c.trouble.Store(&h) }
func (c *azureCloud) heal() {
	c.trouble.Store(nil)
	c.refuse.Store(false)
	c.Fail(0)
}

// listen asks the source over and over until the test ends, or stop is called.
func (c *azureCloud) listen(t *testing.T) (stop func()) { return c.follow(t, c.source) }

// events is how well the source is informed.
func (c *azureCloud) events() (lastGood time.Time, trouble string) {
	h := c.source.Health()[0]
	return h.LastGood, h.Trouble
}
