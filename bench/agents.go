package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

const (
	// herdSize is how many agents there are: each has a connection, and a process may open 20,000 files.
	herdSize = 10_000
	// herdNotices is how many notices are given within one second.
	herdNotices = 1_000
	// herdWatched is for how long beats are counted.
	herdWatched = time.Minute
	// leastWatch is the shortest watch: two beats of each agent.
	leastWatch = 20 * time.Second
	// herdPatience bounds each wait for all of the agents.
	herdPatience = 3 * time.Minute
	// joining is how many agents connect at a time. Their half of the handshake runs on the coordinator's own
	// processors: if all connected at once, each would wait for the others for longer than an agent waits for an
	// answer.
	joining = 64
)

// herdFigures are the results of the suite agents.
type herdFigures struct {
	agents        int
	attached      time.Duration
	attachCPU     time.Duration
	beats         int // during the watch
	watched       time.Duration
	cpu           time.Duration // of the coordinator, during the watch
	acks          spread
	before, after memory // of the coordinator, without and with agents
	notices       spread
	allDurable    time.Duration
	returned      time.Duration // from the restart until all beat again
	lost          int64         // nodes that were called LOST, at any time
	returnedCPU   time.Duration
	noticesWanted int
}

// measureAgents measures what ten thousand agents cost a coordinator. The agents are real heartbeat clients in this
// process, each with a certificate and a connection of its own; the coordinator is another process.
func measureAgents(ctx context.Context, b bench) (_ []figure, err error) {
	c, err := newCoordinators(ctx, b, 1, "heartbeat: 10s\nlease: 30s\n")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	h, err := newHerd(c, max(10, int(herdSize*b.scale)))
	if err != nil {
		return nil, err
	}
	f := herdFigures{agents: len(h.all), noticesWanted: max(1, int(herdNotices*b.scale))}
	step := func(name string, do func(context.Context, *herdFigures) error) error {
		if err := do(ctx, &f); err != nil {
			return fmt.Errorf("%s: %w", name, c.all[0].trouble(err))
		}
		fmt.Fprintf(b.stderr, "agents: %s, load %s\n", name, load())
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer h.wg.Wait()
	defer stop()
	err = errors.Join(err, step("all are attached", h.attach))
	if err == nil {
		err = step("beats were counted", func(ctx context.Context, f *herdFigures) error {
			return h.watch(ctx, f, max(leastWatch, scaled(herdWatched, b.scale)))
		})
	}
	if err == nil {
		err = step("notices were given", h.notices)
	}
	if err == nil {
		err = step("all came back after a restart", h.restart)
	}
	if err != nil {
		return nil, err
	}
	return f.figures(b.args), f.print(b.stdout)
}

// attach starts all agents: when one has had its first answer, another starts.
func (h *herd) attach(ctx context.Context, f *herdFigures) (err error) {
	pid := h.of.all[0].cmd.Process.Pid
	if f.before, err = readMemory(pid); err != nil {
		return err
	}
	used, err := readUsage(pid)
	if err != nil {
		return err
	}
	began := time.Now()
	left := slices.Clone(h.all)
	for under := []*beater(nil); len(left)+len(under) > 0; {
		under = slices.DeleteFunc(under, func(a *beater) bool { _, at, _ := a.client.Health(); return !at.IsZero() })
		for len(under) < joining && len(left) > 0 {
			a := left[0]
			under, left = append(under, a), left[1:]
			h.wg.Go(func() { a.client.Run(ctx) }) // it returns nil once ctx ends
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
		if time.Since(began) > herdPatience {
			_, _, said := under[0].client.Health()
			return fmt.Errorf("%d of %d agents had no answer after %s (%s)", len(left)+len(under), len(h.all), herdPatience, said)
		}
	}
	f.attached = time.Since(began)
	now, err := readUsage(pid)
	f.attachCPU = now.cpu - used.cpu
	return err
}

// heardSince waits until every agent has had an answer after since.
func (h *herd) heardSince(ctx context.Context, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, herdPatience)
	defer cancel()
	for {
		missing, trouble := 0, ""
		for _, a := range h.all {
			if _, at, said := a.client.Health(); at.Before(since) {
				missing, trouble = missing+1, cmp.Or(said, trouble)
			}
		}
		if missing == 0 {
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d agents had no answer (%s): %w", missing, len(h.all), trouble, err)
		}
	}
}

// watch measures what beats cost while nothing else happens.
func (h *herd) watch(ctx context.Context, f *herdFigures, lasts time.Duration) error {
	if err := pause(ctx, lasts/3); err != nil { // the stampede of the start is over, and its garbage is collected
		return err
	}
	pid := h.of.all[0].cmd.Process.Pid
	h.samples() // forget the acks of the start
	used, err := readUsage(pid)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := pause(ctx, lasts); err != nil {
		return err
	}
	now, err := readUsage(pid)
	if err != nil {
		return err
	}
	f.watched, f.cpu, f.acks = time.Since(began), now.cpu-used.cpu, newSpread(h.samples())
	f.beats = len(f.acks)
	f.after, err = readMemory(pid)
	return err
}

// notices has many agents announce that they leave, spread evenly over a second.
func (h *herd) notices(ctx context.Context, f *herdFigures) error {
	many := min(f.noticesWanted, len(h.all))
	took := make([]time.Duration, many)
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i := range many {
		g.Go(func() error {
			if err := pause(ctx, time.Duration(i)*time.Second/time.Duration(many)); err != nil {
				return err
			}
			n := &api.Notice{Incident: fmt.Sprintf("inc-%d", i), Kind: "terminate", Source: "ec2", Stance: "drain", Remaining: durationpb.New(time.Hour)}
			h.all[i].leave(n)
			asked := time.Now()
			err := h.all[i].client.WorkerDecommission(ctx, n)
			took[i] = time.Since(asked)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	f.allDurable, f.notices = time.Since(began), newSpread(took)
	return nil
}

// restart kills the coordinator and starts it again, and waits until every agent beats and a lease has passed.
func (h *herd) restart(ctx context.Context, f *herdFigures) error {
	c := h.of.all[0]
	if err := c.kill(); err != nil {
		return err
	}
	began := time.Now()
	if err := h.of.start(ctx, c); err != nil {
		return err
	}
	if err := h.heardSince(ctx, began); err != nil {
		return err
	}
	f.returned = time.Since(began)
	used, err := readUsage(c.cmd.Process.Pid)
	if err != nil {
		return err
	}
	f.returnedCPU = used.cpu
	if err := pause(ctx, time.Until(began.Add(35*time.Second))); err != nil { // a lease and a little more: a node that the coordinator forgot is LOST by now
		return err
	}
	stream, err := h.of.operator().Events(ctx, &api.EventsRequest{})
	if err != nil {
		return err
	}
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if e.GetType() == "NodeLost" {
			f.lost++
		}
	}
}

func (f herdFigures) perBeat() float64 {
	return float64(f.cpu.Microseconds()) / float64(max(1, f.beats))
}

func (f herdFigures) perAgent() float64 {
	return float64(f.after.rss-f.before.rss) / float64(f.agents) / 1024
}

// rows are the lines of the table and the figures.
func (f herdFigures) rows() []herdRow {
	return []herdRow{
		{"time to attach all", "s", f.attached.Seconds(), 1},
		{"coordinator's CPU to attach one", "ms", milliseconds(f.attachCPU) / float64(f.agents), 2},
		{"beats", "1/s", float64(f.beats) / f.watched.Seconds(), 0},
		{"coordinator's CPU for a beat", "us", f.perBeat(), 0},
		{"coordinator's CPU", "% of a core", 100 * f.cpu.Seconds() / f.watched.Seconds(), 1},
		{"coordinator's RSS", "MiB", mib(f.after.rss), 0},
		{"RSS for an agent", "KiB", f.perAgent(), 1},
		{"ack, p50", "ms", milliseconds(f.acks.quantile(0.5)), 2},
		{"ack, p99", "ms", milliseconds(f.acks.quantile(0.99)), 2},
		{fmt.Sprintf("%d notices in a second, until all are durable", len(f.notices)), "s", f.allDurable.Seconds(), 2},
		{"notice, p50", "ms", milliseconds(f.notices.quantile(0.5)), 1},
		{"notice, p99", "ms", milliseconds(f.notices.quantile(0.99)), 1},
		{"restart until all beat again", "s", f.returned.Seconds(), 1},
		{"coordinator's CPU for that, for an agent", "ms", milliseconds(f.returnedCPU) / float64(f.agents), 2},
		{"nodes called LOST", "", float64(f.lost), 0},
	}
}

type herdRow struct {
	what, unit string
	value      float64
	digits     int
}

func (f herdFigures) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d agents over mutual TLS, a beat each 10 s\n", f.agents)
	for _, r := range f.rows() {
		fmt.Fprintf(&b, "%-50s %10s %s\n", r.what, number(r.value, r.digits), r.unit)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (f herdFigures) figures(command string) (all []figure) {
	for _, r := range f.rows() {
		all = append(all, alone("agents", fmt.Sprintf("%d agents, %s", f.agents, r.what), cmp.Or(r.unit, "nodes"), r.value, command))
	}
	return all
}
