package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// link is one row of the suite links: a machine behind a narrow link is to go, and has more on it than the link can carry in
// time.
type link struct {
	notice time.Duration
	mbits  int
	peers  int
	blocks size
}

// The rows have the notices that clouds give (EC2's 120 s, the others' 30 s), few peers and more peers than a drain keeps, and
// blocks that take from a moment to eight seconds to send.
var linksAsked = []link{
	{30 * time.Second, 20, 4, size{n: 1500, each: 64 << 10}},
	{30 * time.Second, 20, 8, size{n: 120, each: 640 << 10, most: 64 << 20}},
	{30 * time.Second, 20, 8, size{n: 8, each: 20 << 20}},
	{30 * time.Second, 100, 8, size{n: 450, each: 640 << 10, most: 64 << 20}},
	{120 * time.Second, 8, 2, size{n: 180, each: 640 << 10, most: 64 << 20}},
	{120 * time.Second, 20, 4, size{n: 24, each: 20 << 20}},
}

const (
	linkTail = 5 * time.Second // the part of the notice before the deadline in which nothing may be sent
	peerPort = 7412
	// linkPayload is the share of a link that carries blocks' bytes: of a full Ethernet frame of 1514 bytes, 66 are headers.
	linkPayload = 1448.0 / 1514
	// linkSettles is for how long bytes that left the agent before the tail may still be in the queues of its machine.
	linkSettles = 500 * time.Millisecond
	// leastCarried is the target: the share of what the link could carry that is durable at peers.
	leastCarried = 0.95
	// mostAfter is the most bytes that may pass in the tail: enough to end the connections and to acknowledge the last
	// receipts.
	mostAfter = 16 << 10
)

// carriage is the result of one run.
type carriage struct {
	moved, could int64 // bytes: durable at peers; and the most bytes of whole blocks that the link can carry in time
	vain         int64 // bytes of blocks that passed the link and are not durable at any peer
	after        int64 // bytes that passed the link after the tail began
}

func (c carriage) share() float64 { return float64(c.moved) / float64(c.could) }

func needLinks() error {
	var root error
	if os.Geteuid() != 0 {
		root = errors.New("-suite links makes network namespaces: run it as root")
	}
	return errors.Join(root, needs("ip", "iproute2"), needs("tc", "iproute2"))
}

// measureLinks measures how much of what a narrow link can carry is durable elsewhere when the machine goes. The fleets of a
// round run side by side, each in a network of its own: they wait for their links, not for processors.
func measureLinks(ctx context.Context, b bench) ([]figure, error) {
	asked := slices.Clone(linksAsked)
	for i, l := range asked {
		asked[i].notice, asked[i].blocks = max(2*linkTail, scaled(l.notice, b.scale)), l.blocks.scaled(b.scale)
	}
	all := make([][]carriage, len(asked))
	for range b.rounds {
		g, ctx := errgroup.WithContext(ctx)
		for i, l := range asked {
			dir, err := b.g.fresh()
			if err != nil {
				return nil, err
			}
			g.Go(func() error {
				c, err := l.measure(ctx, b, fmt.Sprint("l", i), dir)
				if err := errors.Join(err, b.g.empty(dir)); err != nil {
					return fmt.Errorf("%s: %w", l, err)
				}
				all[i] = append(all[i], c)
				fmt.Fprintf(b.stderr, "%s: %.1f of %.1f MB, load %s\n", l, float64(c.moved)/1e6, float64(c.could)/1e6, load())
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
	}
	return linkFigures(asked, all, b.args), printLinks(b.stdout, asked, all)
}

func (l link) String() string {
	_, blocks, _ := strings.Cut(l.blocks.String(), ": ")
	return fmt.Sprintf("%v, %d Mbit/s to %d, %s", l.notice, l.mbits, l.peers, blocks)
}

// measure makes a fleet, narrows the link of its source, and gives the source its notice.
func (l link) measure(ctx context.Context, b bench, name, dir string) (c carriage, err error) {
	from := source{dir: filepath.Join(dir, "source.store")}
	if from.files, err = l.blocks.make(from.dir); err != nil {
		return c, err
	}
	f := &town{fleet: &fleet{lifeboat: &lifeboat{binary: b.binary, pki: filepath.Join(dir, "pki")}, dir: dir}}
	if f.w, err = newWires(ctx, name); err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	if err := f.start(ctx, l.peers, from.dir); err != nil {
		return c, err
	}
	if err := f.settled(ctx, "source", l.peers, from.files); err != nil {
		return c, err
	}
	at := f.w.machines[1]
	if err := at.narrow(ctx, l.mbits, peerPort); err != nil {
		return c, err
	}
	return l.drain(ctx, f.fleet, at, from)
}

// drain gives the notice, and counts what passes the link until the deadline.
func (l link) drain(ctx context.Context, f *fleet, at machineNS, from source) (c carriage, err error) {
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	var answer []byte
	g.Go(func() (err error) {
		answer, _, err = command(ctx, f.binary, "decommission", "--self", "--wait", "--timeout", l.notice.String(), "--socket", f.socket("source"), "-o", "json")
		if gone, ok := errors.AsType[*exec.ExitError](err); ok && gone.ExitCode() == 4 { // some blocks are lost, as they must be
			err = nil
		}
		return err
	})
	var before, carried int64
	g.Go(func() error {
		for _, look := range []struct {
			at   time.Duration
			into *int64
		}{{l.notice - linkTail + linkSettles, &before}, {l.notice, &carried}} {
			if err := pause(ctx, time.Until(began.Add(look.at))); err != nil {
				return err
			}
			if *look.into, err = at.carried(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return c, f.source.trouble(err)
	}
	var m struct{ Bytes struct{ Moved int64 } }
	if err := json.Unmarshal(answer, &m); err != nil {
		return c, fmt.Errorf("read the manifest %q: %w", answer, err)
	}
	pure := float64(l.mbits) * 1e6 / 8 * (l.notice - linkTail).Seconds() * linkPayload
	var sizes []int64
	for _, file := range from.files.Files {
		sizes = append(sizes, file.Bytes)
	}
	c = carriage{moved: m.Bytes.Moved, could: wholeBlocks(sizes, int64(pure)), after: carried - before}
	c.vain = max(0, int64(float64(carried)*linkPayload)-c.moved)
	return c, nil
}

// wholeBlocks returns the most bytes of whole blocks that fit into room. With blocks of different sizes that is a knapsack,
// which is solved in 2^18 steps: sizes are rounded up to steps, so the answer is never more than what fits.
func wholeBlocks(sizes []int64, room int64) int64 {
	var all int64
	for _, s := range sizes {
		all += s
	}
	if all <= room {
		return all
	}
	if slices.Min(sizes) == slices.Max(sizes) {
		return room / sizes[0] * sizes[0]
	}
	const steps = 1 << 18
	most := make([]int64, steps+1) // bytes of the best choice that fits into so many steps
	for _, s := range sizes {
		need := int((s*steps + room - 1) / room)
		for i := steps; i >= need; i-- {
			most[i] = max(most[i], most[i-need]+s)
		}
	}
	return most[steps]
}

// town is a fleet whose processes have a machine each: a network namespace.
type town struct {
	*fleet
	w     *wires
	peers []*daemon
}

// start starts the coordinator on the first machine, the source on the second, and its peers.
func (f *town) start(ctx context.Context, peers int, store string) (err error) {
	nodes := []string{"source"}
	for i := range peers {
		nodes = append(nodes, fmt.Sprintf("peer-%d", i+1))
	}
	if err := f.issue(ctx, nodes...); err != nil {
		return err
	}
	on, err := f.w.add(ctx)
	if err != nil {
		return err
	}
	at := on.ip + ":7411"
	if f.coordinator, err = f.daemonOn(ctx, on, "coordinator", "coordinator", f.coordinatorFile(at, on.ip+":7410")); err != nil {
		return err
	}
	for _, node := range nodes {
		if on, err = f.w.add(ctx); err != nil {
			return err
		}
		dir := filepath.Join(f.dir, node+".store")
		if node == "source" {
			dir = store
		}
		file := f.agent(node, at, fmt.Sprintf("%s:%d", on.ip, peerPort), "127.0.0.1:7413", f.land, dir) + fmt.Sprintf("drain: {tail: %s}\n", linkTail)
		d, err := f.daemonOn(ctx, on, "agent", node, file)
		if err != nil {
			return err
		}
		if node == "source" {
			f.source = d
		} else {
			f.peers = append(f.peers, d)
		}
	}
	return nil
}

func (f *town) daemonOn(ctx context.Context, on machineNS, verb, name, conf string) (*daemon, error) {
	if err := f.settings(name, conf); err != nil {
		return nil, err
	}
	return start(ctx, filepath.Join(f.dir, name+".log"), "ip", on.inside(f.binary, verb, "--config", filepath.Join(f.dir, name, "lifeboat.yaml"))...)
}

func (f *town) stop() error {
	errs := []error{f.fleet.stop()}
	for _, d := range f.peers {
		_, err := d.stop()
		errs = append(errs, err)
	}
	return errors.Join(append(errs, f.w.close())...)
}

func printLinks(w io.Writer, asked []link, all [][]carriage) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\nnarrow links (tbf), a tail of %v; medians of %d, at worst after the tail; ! not what is wanted\n", linkTail, len(all[0]))
	const line = "%-62s %7s %7s %9s %9s\n"
	fmt.Fprintf(&b, line, "", "of what", "MB of", "MB in", "KB after")
	fmt.Fprintf(&b, line, "", "fits %", "link", "vain", "the tail")
	for i, l := range asked {
		s := sumUp(all[i])
		share := number(100*s.share, 1)
		if s.share < leastCarried {
			share += "!"
		}
		after := number(float64(s.after)/1e3, 0)
		if s.after > mostAfter {
			after += "!"
		}
		fmt.Fprintf(&b, line, l, share, number(s.fits/1e6, 1), number(s.vain/1e6, 1), after)
	}
	fmt.Fprintf(&b, "of what fits: bytes durable at peers, of the most that whole blocks allow, which is MB of link.\n"+
		"KB after the tail: passed the link %v after it began or later. Wanted: %.0f %%, %d KB of goodbyes.\n", linkSettles, 100*leastCarried, mostAfter>>10)
	_, err := io.WriteString(w, b.String())
	return err
}

// linkSum sums up the rounds of a link.
type linkSum struct {
	share, fits, vain float64 // medians
	after             int64   // the largest
}

func sumUp(rounds []carriage) (s linkSum) {
	var shares, fits, vain []float64
	for _, c := range rounds {
		shares, fits, vain = append(shares, c.share()), append(fits, float64(c.could)), append(vain, float64(c.vain))
		s.after = max(s.after, c.after)
	}
	s.share, s.fits, s.vain = median(shares), median(fits), median(vain)
	return s
}

func linkFigures(asked []link, all [][]carriage, args string) (figures []figure) {
	for i, l := range asked {
		s := sumUp(all[i])
		add := func(what, unit string, value float64) {
			figures = append(figures, figure{Suite: "links", Name: l.String() + ": " + what, Value: rounded(value), Unit: unit, Command: args})
		}
		add("durable", "% of what fits", 100*s.share)
		add("in vain", "MB", s.vain/1e6)
		add("after the tail began", "bytes", float64(s.after))
	}
	return figures
}
