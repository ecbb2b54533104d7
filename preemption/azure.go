package preemption

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The paths that are asked. https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events and
// https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service name the versions.
const (
	azureAddress = "http://169.254.169.254"
	azureEvents  = "/metadata/scheduledevents?api-version=2020-07-01"
	azureCompute = "/metadata/instance/compute?api-version=2021-02-01&format=json"

	pathEvents  = "scheduledevents" // also the start of the notices' ids; the EventId follows
	pathCompute = "instance/compute"
)

// azureBodyLimit leaves room for the day on which every machine of a scale set of 1000 is reclaimed at once: each machine's
// list names all of them, at some 500 bytes an event.
const azureBodyLimit = 1 << 20

// AzureConfig is what an Azure source needs to know.
type AzureConfig struct {
	Metadata
	// Name is this virtual machine's, as Azure's events call it, such as pool_24. Empty: the service is asked.
	Name string
	// Acknowledge lets an event begin, by Release, before its time. It is never done for an event that names other
	// machines too.
	Acknowledge bool
	// Uptime is how long ago this machine booted, 0 if that is not known. Nil: the kernel is asked. In a synctest bubble the
	// kernel's clock differs from the bubble's.
	Uptime func() time.Duration
}

// Azure is the source that polls Azure's Scheduled Events, once per second as Microsoft advises.
//
// Only 200 with a well-formed list changes what it believes. The list has the events of all machines of a scale set or
// availability set, so an event that does not name this machine is passed over. As long as this machine's name is not known,
// a list with events in it means neither yes nor no, even if it names only one machine: that may be a neighbour.
//
// The first question turns the events on, and may have to wait two minutes for its answer; a day without a question turns
// them off again. So a question that gets no answer in time is left waiting beside those that follow.
type Azure struct {
	poller
	cfg      AzureConfig
	endpoint string
	client   *http.Client

	// Only the goroutine that calls Next uses these.
	seen   map[string]sighting // by notice id, the events that name us in the newest list
	naming streak

	clock serviceClock

	mu          sync.Mutex // guards what follows
	name        string     // empty: not known yet
	nameTrouble string
}

// NewAzure returns a source that asks nothing until Next is called.
func NewAzure(cfg AzureConfig) (*Azure, error) {
	if _, err := parseEndpoint(cfg.Endpoint); err != nil {
		return nil, err
	}
	if cfg.Uptime == nil {
		cfg.Uptime = func() time.Duration { return Now().SinceBoot }
	}
	transport, every := cfg.transport(), cfg.every()
	a := &Azure{
		cfg:      cfg,
		endpoint: strings.TrimSuffix(cmp.Or(cfg.Endpoint, azureAddress), "/"),
		client:   &http.Client{Transport: transport, CheckRedirect: refuseRedirects},
		seen:     make(map[string]sighting),
		naming:   streak{log: cfg.Log.With("source", SourceAzure, "path", pathCompute), what: "instance metadata"},
		name:     cfg.Name,
	}
	a.poller = poller{
		every:  every,
		beside: a.learnName, idle: transport.CloseIdleConnections, polled: cfg.Polled,
		// A well-formed list is complete, so one list that leaves an event out withdraws it. A list with a lower incarnation
		// than an earlier one counts too: nothing promises that the number never starts anew, and a source that waited for
		// it to catch up would be deaf until then.
		paths: []*polledPath{{
			belief: newBelief(cfg.Log, SourceAzure, pathEvents, every, 1, a.read),
			asker:  asker[answer]{ask: a.events, limit: armLimit},
		}},
	}
	return a, nil
}

// Health tells how well the source is informed of events and, until it is known, of this machine's name.
func (a *Azure) Health() []Health {
	all := a.poller.Health()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.name == "" && a.nameTrouble != "" {
		all = append(all, Health{Source: SourceAzure, Path: pathCompute, Trouble: a.nameTrouble})
	}
	return all
}

// events asks for the list of events. An empty list is a body too, so there is no "nothing found".
func (a *Azure) events(ctx context.Context) (answer, error) {
	body, err := a.ask(ctx, http.MethodGet, azureEvents, nil)
	return answer{body: body, found: err == nil}, err
}

// learnName asks what this machine is called, unless that is known. It runs beside the question for events, whose answer is
// of no use without the name: each has the whole time of a poll.
func (a *Azure) learnName(ctx context.Context) {
	if name, _ := a.ownName(); name != "" {
		return
	}
	began := time.Now()
	_, err := a.compute(ctx)
	if a.cfg.Polled != nil {
		a.cfg.Polled(Poll{Source: SourceAzure, Path: pathCompute, Result: result(err), Took: time.Since(began)})
	}
	if err != nil {
		a.naming.failed(err)
		a.mu.Lock()
		a.nameTrouble = err.Error()
		a.mu.Unlock()
		return
	}
	a.naming.worked()
}

// ownName is what Azure's events call this machine; "" with the reason why it is not known.
func (a *Azure) ownName() (name, trouble string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.name, a.nameTrouble
}

// compute is what the service says of this machine.
type compute struct{ Name, VMID, VMSize, Location, Zone, Priority string }

// compute asks what machine this is, and remembers its name.
func (a *Azure) compute(ctx context.Context) (compute, error) {
	body, err := a.ask(ctx, http.MethodGet, azureCompute, nil)
	if err != nil {
		return compute{}, fmt.Errorf("ask for this machine's name: %w", err)
	}
	var c compute
	if err := json.Unmarshal(body, &c); err != nil {
		return compute{}, fmt.Errorf("read %s: %w", pathCompute, err)
	}
	if c.Name == "" {
		return compute{}, fmt.Errorf("read %s: it has no name", pathCompute)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.name == "" {
		a.name = c.Name
	}
	return c, nil
}

// Instance asks what machine this is. It may be called beside Next.
func (a *Azure) Instance(ctx context.Context) (Instance, error) {
	c, err := a.compute(ctx)
	if err != nil {
		return Instance{}, err
	}
	for _, word := range []string{c.VMID, c.VMSize, c.Location, c.Zone} {
		if !isName(word) {
			return Instance{}, fmt.Errorf("read %s: it says %.40q, which is no name", pathCompute, word)
		}
	}
	i := Instance{ID: c.VMID, Type: c.VMSize, Zone: c.Location}
	if c.Zone != "" {
		i.Zone += "-" + c.Zone // zones are numbers within a location; Kubernetes on Azure calls them so as well
	}
	switch c.Priority {
	case "Spot", "Low": // Low is what Spot was called before
		i.LifeCycle = "spot"
	case "Regular", "": // Spot has to be asked for
		i.LifeCycle = "on-demand"
	}
	return i, nil
}

// ask makes one request and returns the body of a 200. Everything else is an error, which means: not known.
func (a *Azure) ask(ctx context.Context, method, path string, say []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.endpoint+path, bytes.NewReader(say))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Metadata", "true")
	if say != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, inTime(ctx, err)
	}
	defer resp.Body.Close()
	a.clock.hear(resp)
	if resp.StatusCode != http.StatusOK {
		io.CopyN(io.Discard, resp.Body, 4<<10) // reading it to its end keeps the connection
		return nil, &statusError{resp.StatusCode}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, azureBodyLimit+1))
	switch {
	case err != nil:
		return nil, inTime(ctx, err)
	case len(body) > azureBodyLimit:
		return nil, fmt.Errorf("body is longer than %d bytes", azureBodyLimit)
	}
	return body, nil
}
