package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lifeboat/lifeboat/preemption"
)

// burstLasts is for how long a metadata service answers 503 in a burst.
const burstLasts = 3 * time.Second

// notice is one row of the suite notices: how long it takes until a notice is durable, over so many samples, each at
// another moment of the second.
type notice struct {
	name     string
	provider string
	samples  int
	burst    bool // the notice comes in the middle of a burst of 503; the clock runs from the end of the burst
	target   map[string]time.Duration
}

var noticesAsked = []notice{
	{name: "ec2, asked each second", provider: preemption.SourceEC2, samples: 200,
		target: map[string]time.Duration{"mean": 550 * time.Millisecond, "max": 1100 * time.Millisecond}},
	{name: "azure, asked each second", provider: preemption.SourceAzure, samples: 50,
		target: map[string]time.Duration{"max": 1100 * time.Millisecond}},
	{name: "gce, hanging GET", provider: preemption.SourceGCE, samples: 100,
		target: map[string]time.Duration{"p99": 100 * time.Millisecond}},
	{name: "gce, once 3 s of 503 are over", provider: preemption.SourceGCE, samples: 30, burst: true,
		target: map[string]time.Duration{"max": 300 * time.Millisecond}},
}

// hostsAtOnce is how many agents are measured side by side. All of them together take a few hundredths of a core while
// idle.
const hostsAtOnce = 10

// measureNotices measures the time from when a cloud shows a notice until the agent has it on disk and leaves.
func measureNotices(ctx context.Context, b bench) ([]figure, error) {
	var delays []delay
	for _, n := range noticesAsked {
		n.samples = max(1, int(float64(n.samples)*b.scale))
		began := time.Now()
		took, err := n.measure(ctx, b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.name, err)
		}
		slow := slices.MaxFunc(took, func(a, b hearing) int { return cmp.Compare(a.durable, b.durable) })
		fmt.Fprintf(b.stderr, "%s: %d notices in %.0f s, the slowest heard after %.1f ms and on the disk %.1f ms later, load %s\n",
			n.name, len(took), time.Since(began).Seconds(), milliseconds(slow.heard), milliseconds(slow.durable-slow.heard), load())
		delays = append(delays, delay{n.name, newSpread(durables(took)), n.target})
	}
	return delayFigures("notices", delays, b.args), printDelays(b.stdout, "notice to durable DecommissionSelf", delays)
}

func durables(all []hearing) []time.Duration {
	took := make([]time.Duration, len(all))
	for i, one := range all {
		took[i] = one.durable
	}
	return took
}

// measure runs the agents and takes the samples. Their coordinator takes connections and never answers, which is the
// worst that a coordinator can do: nothing about a notice may wait for it.
func (n notice) measure(ctx context.Context, b bench) (took []hearing, err error) {
	into, err := b.g.fresh()
	if err != nil {
		return nil, err
	}
	coordinator, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer coordinator.Close()
	deaf := func(h *host, ports []string) string {
		return fmt.Sprintf("coordinators: [%q]\ntls: {dev_insecure: true}\n%s", coordinator.Addr(), agentSettings(h, "bench", ports))
	}
	hosts := make([]*host, min(hostsAtOnce, n.samples))
	defer func() {
		for _, h := range hosts {
			if h != nil {
				err = errors.Join(err, h.close())
			}
		}
	}()
	for i := range hosts {
		if hosts[i], err = newHost(ctx, filepath.Join(into, fmt.Sprint(i)), b.binary, "agent", n.provider, deaf); err != nil {
			return nil, err
		}
	}
	var mu sync.Mutex // guards left and took
	left := phases(n.samples)
	next := func() (phase time.Duration, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(left) == 0 {
			return 0, false
		}
		phase, left = left[0], left[1:]
		return phase, true
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, h := range hosts {
		g.Go(func() error {
			w, err := watchJournal(h.data())
			if err != nil {
				return err
			}
			defer w.close()
			for phase, ok := next(); ok; phase, ok = next() {
				one, err := h.sample(ctx, w, func() (time.Time, error) { return n.give(ctx, h.fake, phase) })
				if err != nil {
					return err
				}
				mu.Lock()
				took = append(took, one)
				mu.Unlock()
			}
			return nil
		})
	}
	return took, g.Wait()
}

// phases returns n random moments of a second, in random order, one in each nth of the second. With n moments that fall
// where chance has them, the mean of 200 would be off by 20 ms in some runs, which would say nothing of what was
// measured.
func phases(n int) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = time.Duration((float64(i) + rand.Float64()) / float64(n) * float64(time.Second))
	}
	rand.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// give has the service show its notice at that phase of the agent's second. The agent polls each second, and the second
// begins when the last notice is over: an answer ended it.
func (n notice) give(ctx context.Context, fake *pretender, phase time.Duration) (time.Time, error) {
	if err := pause(ctx, phase); err != nil {
		return time.Time{}, err
	}
	if n.burst {
		return fake.burst(ctx, burstLasts)
	}
	given := time.Now()
	fake.interrupt()
	return given, nil
}
