package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

const (
	// stormBlocks is the most blocks that a node holds. A node holds between a hundredth of that and all of it, spread evenly over the
	// logarithm: as many nodes hold few as hold many.
	stormBlocks = 100_000
	// stormMost is about what all nodes hold together: ten thousand of them would have 200 million blocks, so all are scaled down.
	stormMost = 4_000_000
	// stormLeavers announce within a second that they leave, and each sends an account of stormLines lines.
	stormLeavers = 2_000
	stormLines   = 10_000
	// stormLooks is how often a second a block is located, for stormLasts, over stormAskers connections.
	stormLooks  = 20_000
	stormLasts  = 10 * time.Second
	stormAskers = 16
)

// storm is a bad day: many agents with twenty disks and landed blocks, whose leader is killed, and of which many are taken at once.
type storm struct {
	*herd
	desk  api.OperatorClient
	web   *http.Client
	held  []int // by agent
	total int
	rows  []herdRow
	wrong map[string]int // how often a call was refused, by the words of the error
	mu    sync.Mutex     // guards wrong
}

// measureStorm measures how one coordinator, and three, bear a storm. There is no target: it shows shapes, and which part is the worst.
func measureStorm(ctx context.Context, b bench) (all []figure, err error) {
	binaries := []string{b.binary}
	if b.against != "" {
		binaries = append(binaries, b.against)
	}
	for i := range 2 * len(binaries) {
		n := 1 + i/len(binaries)*2
		b.binary = binaries[i%len(binaries)]
		s := &storm{wrong: map[string]int{}}
		if err := s.run(ctx, b, n); err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%d coordinators, %d agents", n, len(s.all))
		if b.binary == b.against {
			name += ", " + theOther
		}
		if err := s.print(b.stdout, name); err != nil {
			return nil, err
		}
		for _, r := range s.rows {
			all = append(all, alone("storm", name+", "+r.what, cmp.Or(r.unit, "nodes"), r.value, b.args))
		}
	}
	return all, nil
}

func (s *storm) run(ctx context.Context, b bench, n int) (err error) {
	c, err := newCoordinators(ctx, b, n, "heartbeat: 10s\nlease: 30s\n")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	many := max(10, int(herdSize*b.scale))
	most := float64(stormBlocks)
	for s.held = nil; len(s.held) < many; {
		s.held = append(s.held, int(most/100*math.Pow(100, rand.Float64())))
	}
	for i := range s.held { // scale down to stormMost: 0.215 of most is the mean
		s.held[i] = int(float64(s.held[i]) * min(1, stormMost/(most*0.215*float64(many))))
		s.total += s.held[i]
	}
	if s.herd, err = newHerdOf(c, many, twentyDisks, s.landed, calmly(joining)); err != nil {
		return err
	}
	s.desk, s.web = c.operator(), c.pages()
	ctx, stop := context.WithCancel(ctx)
	defer s.wg.Wait()
	defer stop()
	for _, step := range []struct {
		name string
		do   func(context.Context, bench) error
	}{
		{"all are attached, and what landed is known", s.begin},
		{"beats were counted", s.quiet},
		{"tables were read", s.tables},
		{"blocks were looked for", s.look},
		{"the leader was killed", s.kill},
		{"many left", s.leaveAtOnce},
	} {
		if err := step.do(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", step.name, c.all[0].trouble(err))
		}
		fmt.Fprintf(b.stderr, "storm: %d coordinators: %s, load %s\n", n, step.name, load())
	}
	return nil
}

// calmly returns a dialer that lets few handshakes be under way at a time on this side. Real agents have machines of their own; a
// thousand handshakes on this one would wait for each other for longer than an agent waits.
func calmly(few int) func(context.Context, string, string) (net.Conn, error) {
	slots := make(chan struct{}, few)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			<-slots
			return nil, err
		}
		return &shaking{Conn: conn, leave: sync.OnceFunc(func() { <-slots })}, nil
	}
}

// shaking is a connection whose handshake lasts until its second write: in TLS 1.3, the client ends the handshake with that.
type shaking struct {
	net.Conn
	writes atomic.Int32
	leave  func()
}

func (c *shaking) Write(b []byte) (int, error) {
	if c.writes.Add(1) == 2 {
		defer c.leave()
	}
	return c.Conn.Write(b)
}

func (c *shaking) Close() error {
	c.leave()
	return c.Conn.Close()
}

func blockOf(agent, i int) string { return fmt.Sprintf("cache/app-%d/rdd_%d_%d", agent%50, agent, i) }

// landed yields the blocks that an agent holds.
func (s *storm) landed(agent int) iter.Seq2[*api.HeldBlock, error] {
	return func(yield func(*api.HeldBlock, error) bool) {
		for i := range s.held[agent] {
			if !yield(&api.HeldBlock{Id: blockOf(agent, i), Bytes: 1 << 20, From: fmt.Sprintf("gone-%d", agent%100)}, nil) {
				return
			}
		}
	}
}

func (s *storm) add(what, unit string, value float64, digits int) {
	s.rows = append(s.rows, herdRow{what, unit, value, digits})
}

func (s *storm) refused(err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	words := err.Error()
	for i := range s.all { // the same error from all nodes counts as one
		if name := fmt.Sprintf("node-%05d", i); strings.Contains(words, name) {
			words = strings.ReplaceAll(words, name, "NODE")
			break
		}
	}
	s.wrong[words]++
}

// used returns the CPU time of the coordinators that run, and the largest RSS among them.
func (s *storm) used() (cpu time.Duration, rss int64) {
	for _, one := range s.of.all {
		if u, err := readUsage(one.cmd.Process.Pid); err == nil {
			cpu += u.cpu
		}
		if m, err := readMemory(one.cmd.Process.Pid); err == nil {
			rss = max(rss, m.rss)
		}
	}
	return cpu, rss
}

// known waits until the leader knows of all blocks.
func (s *storm) known(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, herdPatience)
	defer cancel()
	for {
		st, err := s.desk.GetStatus(ctx, &api.GetStatusRequest{OfLeader: true})
		if err == nil && st.GetBlocksLocated() >= int64(s.total) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d blocks are known: %w", st.GetBlocksLocated(), s.total, cmp.Or(err, ctx.Err()))
		}
		_ = pause(ctx, 100*time.Millisecond)
	}
}

func (s *storm) begin(ctx context.Context, _ bench) error {
	var f herdFigures
	began := time.Now()
	if err := s.attach(ctx, &f); err != nil {
		return err
	}
	if err := s.known(ctx); err != nil {
		return err
	}
	cpu, rss := s.used()
	s.add("blocks that landed", "", float64(s.total), 0)
	s.add("until all are attached", "s", f.attached.Seconds(), 1)
	s.add("until all that landed is known", "s", time.Since(began).Seconds(), 1)
	s.add("coordinators' CPU for that", "s", cpu.Seconds(), 1)
	s.add("leader's RSS", "MiB", mib(rss), 0)
	return nil
}

// acks measures how soon beats are answered, and what CPU the coordinators take, while do runs.
func (s *storm) acks(what string, do func() error) error {
	s.samples()
	before, _ := s.used()
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	after, _ := s.used()
	acks := newSpread(s.samples())
	if len(acks) > 0 {
		s.add("beats' p50, "+what, "ms", milliseconds(acks.quantile(0.5)), 1)
		s.add("beats' p99, "+what, "ms", milliseconds(acks.quantile(0.99)), 1)
	}
	if after > before {
		s.add("coordinators' CPU, "+what, "% of a core", 100*(after-before).Seconds()/time.Since(began).Seconds(), 0)
	}
	return nil
}

func (s *storm) quiet(ctx context.Context, b bench) error {
	return s.acks("quiet", func() error { return pause(ctx, max(leastWatch, scaled(herdWatched, b.scale))) })
}

// tables reads the tables that people look at, one after another.
func (s *storm) tables(ctx context.Context, _ bench) error {
	leader, err := s.of.leader(ctx, s.desk)
	if err != nil {
		return err
	}
	get := func(path string) func() error {
		return func() error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+leader.http+path, nil)
			if err != nil {
				return err
			}
			answer, err := s.web.Do(r)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return errors.New(answer.Status)
			}
			_, err = io.Copy(io.Discard, answer.Body)
			return err
		}
	}
	return s.acks("tables being read", func() error {
		for _, q := range []struct {
			name string
			ask  func() error
		}{
			{"ListNodes", func() error { _, err := s.desk.ListNodes(ctx, &api.ListNodesRequest{}); return err }},
			{"GET /nodes", get("/nodes")},
			{"GET /metrics", get("/metrics")},
			{"GetStatus", func() error { _, err := s.desk.GetStatus(ctx, &api.GetStatusRequest{OfLeader: true}); return err }},
		} {
			var took []time.Duration
			for range 20 {
				began := time.Now()
				if err := q.ask(); err != nil {
					return fmt.Errorf("%s: %w", q.name, err)
				}
				took = append(took, time.Since(began))
			}
			s.add(q.name+", p50", "ms", milliseconds(newSpread(took).quantile(0.5)), 1)
		}
		return nil
	})
}

// look locates random blocks.
func (s *storm) look(ctx context.Context, b bench) error {
	var mu sync.Mutex
	var took []time.Duration
	err := s.acks("blocks being looked for", func() error {
		ctx, cancel := context.WithCancel(ctx) // with a deadline, calls that are under way at the end would count as refused
		defer cancel()
		defer time.AfterFunc(stormLasts, cancel).Stop()
		var askers sync.WaitGroup
		for n := range stormAskers {
			desk := s.of.operator()
			askers.Go(func() {
				var own []time.Duration
				var under sync.WaitGroup
				for range 8 { // so many calls at a time on one connection
					under.Go(func() {
						for tick := time.NewTicker(time.Second * stormAskers * 8 / stormLooks); ctx.Err() == nil; {
							a := (n + rand.IntN(len(s.held))) % len(s.held)
							began := time.Now()
							r, err := desk.Locate(ctx, &api.LocateRequest{Id: blockOf(a, rand.IntN(max(1, s.held[a])))})
							if ctx.Err() != nil {
								return
							}
							if err == nil && r.GetState() != "held" {
								err = fmt.Errorf("a block that is held is said to be %s", r.GetState())
							}
							if s.refused(err); err == nil {
								mu.Lock()
								own = append(own, time.Since(began))
								mu.Unlock()
							}
							select {
							case <-tick.C:
							case <-ctx.Done():
							}
						}
					})
				}
				under.Wait()
				mu.Lock()
				defer mu.Unlock()
				took = append(took, own...)
			})
		}
		askers.Wait()
		return nil
	})
	s.add("answers on where a block is", "1/s", float64(len(took))/stormLasts.Seconds(), 0)
	if len(took) > 0 {
		s.add("answer, p99", "ms", milliseconds(newSpread(took).quantile(0.99)), 1)
	}
	return err
}

// kill kills the leader as a power cut would, and waits until the next leader knows all blocks. A coordinator that is alone is started
// again.
func (s *storm) kill(ctx context.Context, _ bench) error {
	leader, err := s.of.leader(ctx, s.desk)
	if err != nil {
		return err
	}
	if err := leader.kill(); err != nil {
		return err
	}
	began := time.Now()
	if len(s.of.all) == 1 {
		if err := s.of.start(ctx, leader); err != nil {
			return err
		}
	}
	for {
		_, err := s.desk.GetStatus(ctx, &api.GetStatusRequest{OfLeader: true})
		if err == nil {
			break
		}
		s.refused(err)
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	s.add("kill -9 until operators are answered", "s", time.Since(began).Seconds(), 2)
	if err := s.heardSince(ctx, began); err != nil {
		return err
	}
	s.add("until all beat", "s", time.Since(began).Seconds(), 1)
	if err := s.known(ctx); err != nil {
		return err
	}
	s.add("until the new leader knows all", "s", time.Since(began).Seconds(), 1)
	if err := pause(ctx, time.Until(began.Add(35*time.Second))); err != nil {
		return err
	}
	st, err := s.desk.GetStatus(ctx, &api.GetStatusRequest{OfLeader: true})
	s.add("nodes LOST for it", "", float64(st.GetNodes()["LOST"]), 0)
	if len(s.of.all) > 1 {
		err = errors.Join(err, s.of.start(ctx, leader))
	}
	return err
}

// leaveAtOnce takes a whole pool within a second: each node announces that it leaves, and sends its account.
func (s *storm) leaveAtOnce(ctx context.Context, b bench) error {
	many := min(len(s.all)/2, max(1, int(stormLeavers*b.scale)))
	var said, accounts []time.Duration
	var mu sync.Mutex
	began := time.Now()
	err := s.acks("many leaving", func() error {
		g, ctx := errgroup.WithContext(ctx)
		for i := range many {
			g.Go(func() error {
				if err := pause(ctx, time.Duration(i)*time.Second/time.Duration(many)); err != nil {
					return err
				}
				a := s.all[i]
				n := &api.Notice{Incident: fmt.Sprintf("inc-%d", i), Kind: "terminate", Source: "ec2", Stance: "drain", Remaining: durationpb.New(time.Hour)}
				a.leave(n)
				asked := time.Now()
				s.refused(a.client.WorkerDecommission(ctx, n))
				told := time.Now()
				if len(a.client.Peers()) == 0 {
					s.refused(errors.New("a node that leaves knows no peer"))
				}
				s.refused(a.client.Goodbye(ctx, &api.ManifestSummary{
					Incident: n.Incident, Kind: n.Kind, Source: n.Source,
					Moved: &api.Count{Blocks: stormLines}, Total: &api.Count{Blocks: stormLines},
				}, account(i)))
				mu.Lock()
				defer mu.Unlock()
				said, accounts = append(said, told.Sub(asked)), append(accounts, time.Since(told))
				return nil
			})
		}
		return g.Wait()
	})
	if err != nil {
		return err
	}
	s.add(fmt.Sprintf("%d notices and accounts, until all are durable", many), "s", time.Since(began).Seconds(), 1)
	s.add("notice, p99", "ms", milliseconds(newSpread(said).quantile(0.99)), 1)
	s.add("account, p50", "ms", milliseconds(newSpread(accounts).quantile(0.5)), 0)
	s.add("account, p99", "ms", milliseconds(newSpread(accounts).quantile(0.99)), 0)
	_, rss := s.used()
	s.add("leader's RSS then", "MiB", mib(rss), 0)
	return nil
}

// account yields a manifest of stormLines lines.
func account(agent int) iter.Seq2[*api.ManifestEntry, error] {
	return func(yield func(*api.ManifestEntry, error) bool) {
		for i := range stormLines {
			if !yield(&api.ManifestEntry{Id: blockOf(1_000_000+agent, i), Bytes: 1 << 20, Outcome: "moved", Peer: fmt.Sprintf("node-%05d", i%32)}, nil) {
				return
			}
		}
	}
}

// twentyDisks is the status of a host with twenty disks.
var twentyDisks = func() *api.Status {
	s := proto.CloneOf(fourDisks)
	for i := len(s.Disks); i < 20; i++ {
		d := proto.CloneOf(s.Disks[0])
		d.Path, d.Device = fmt.Sprintf("/mnt/d%d", i), fmt.Sprintf("nvme%dn1", i)
		d.Mount = d.Path
		s.Disks = append(s.Disks, d)
	}
	return s
}()

func (s *storm) print(w io.Writer, name string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s over mutual TLS, a beat each 10 s with 20 disks\n", name)
	for _, r := range s.rows {
		fmt.Fprintf(&b, "%-50s %10s %s\n", r.what, number(r.value, r.digits), r.unit)
	}
	all := slices.SortedFunc(maps.Keys(s.wrong), func(a, b string) int { return cmp.Or(s.wrong[b]-s.wrong[a], strings.Compare(a, b)) })
	for _, words := range all[:min(len(all), 10)] {
		fmt.Fprintf(&b, "refused %d times: %s\n", s.wrong[words], words)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
