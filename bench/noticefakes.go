package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/preemption/azurefake"
	"github.com/lifeboat/lifeboat/preemption/ec2fake"
	"github.com/lifeboat/lifeboat/preemption/gcefake"
)

// pretender is a pretend metadata service on a loopback port. It counts the requests by what they ask.
type pretender struct {
	provider string
	kind     preemption.Kind // of the notice that interrupt gives

	interrupt, withdraw func()
	fail                func(status int)

	listener net.Listener
	server   *http.Server
	served   chan struct{} // closed when the server has ended

	mu    sync.Mutex // guards asked
	asked map[string]int
}

// newPretender serves the pretend service of a provider.
func newPretender(provider string) (*pretender, error) {
	p := &pretender{provider: provider, asked: map[string]int{}, served: make(chan struct{})}
	service := p.pose()
	var err error
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	counted := func(w http.ResponseWriter, r *http.Request) {
		p.count(question(r))
		service.ServeHTTP(w, r)
	}
	p.server = &http.Server{Handler: http.HandlerFunc(counted), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(p.served)
		p.server.Serve(p.listener) // the error says that it was closed
	}()
	return p, nil
}

// pose makes the service of the provider. Its notices leave two minutes; Google's leaves what Google gives.
func (p *pretender) pose() http.Handler {
	const lead = 2 * time.Minute
	switch p.provider {
	case preemption.SourceGCE:
		s := gcefake.New(gcefake.Instance{
			ID: "4520031799277581759", MachineType: "n2-standard-8", Zone: "us-central1-a", Spot: true, Graceful: true,
		})
		p.kind, p.interrupt, p.withdraw, p.fail = preemption.KindPreempt, s.Preempt, s.Withdraw, s.Fail
		return s
	case preemption.SourceAzure:
		s := azurefake.New(azurefake.Machine{
			Name: "pool_24", ID: "02aab8a4-74ef-476e-8182-f6d2ba4166a6", Size: "Standard_E8ds_v5",
			Location: "westeurope", Zone: "2", Priority: "Spot",
		})
		var event string
		p.kind, p.fail = preemption.KindPreempt, s.Fail
		p.interrupt = func() { event = s.Schedule(azurefake.Event{Type: "Preempt", NotBefore: time.Now().Add(lead)}) }
		p.withdraw = func() { s.Remove(event) }
		return s
	default:
		s := ec2fake.New(ec2fake.Instance{
			ID: "i-0123456789abcdef0", Type: "r5.4xlarge", Zone: "us-east-1a", Region: "us-east-1", LifeCycle: "spot",
		})
		p.kind, p.withdraw, p.fail = preemption.KindTerminate, s.Withdraw, s.Fail
		p.interrupt = func() { s.Interrupt("terminate", time.Now().Add(lead)) }
		return s
	}
}

func (p *pretender) url() string { return "http://" + p.listener.Addr().String() }

// question is a short name for what a request asks.
func question(r *http.Request) string {
	path := r.URL.Path
	for _, base := range []string{"/latest/meta-data/", "/computeMetadata/v1/instance/"} {
		path = strings.TrimPrefix(path, base)
	}
	if r.Method != http.MethodGet {
		path = r.Method + " " + path
	}
	if r.URL.Query().Get("wait_for_change") == "true" {
		path += " (hanging)"
	}
	return path
}

func (p *pretender) count(question string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[question]++
}

// counts returns how often each question was asked so far.
func (p *pretender) counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.asked)
}

// burst has the service answer 503 for a while, with a notice in the middle of it. It returns when the service answers
// again.
func (p *pretender) burst(ctx context.Context, lasts time.Duration) (recovered time.Time, err error) {
	p.fail(http.StatusServiceUnavailable)
	err = pause(ctx, lasts/2)
	p.interrupt()
	err = errors.Join(err, pause(ctx, lasts/2))
	recovered = time.Now()
	p.fail(0)
	return recovered, err
}

func (p *pretender) close() error {
	err := p.server.Close()
	<-p.served
	if err != nil {
		return fmt.Errorf("close the pretend %s: %w", p.provider, err)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
