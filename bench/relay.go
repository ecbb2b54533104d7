package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// relay is a node that leaves after another node left its blocks with it; it has no blocks of its own. The other
// node, their home, is gone by then.
type relay struct{ *lifeboat }

func (r relay) move(ctx context.Context, from source, into string) (out outcome, err error) {
	f := &fleet{lifeboat: r.lifeboat, dir: into, relays: true}
	home := &fleet{lifeboat: r.lifeboat, dir: into}
	defer func() { err = errors.Join(err, home.stop(), f.stop()) }()
	ports, err := freePorts(8)
	if err != nil {
		return out, err
	}
	if err := f.coordinate(ctx, ports[0], ports[1]); err != nil {
		return out, err
	}
	agent := func(name string, at int, land, store string) (*daemon, error) {
		return f.daemon(ctx, "agent", name, f.agent(name, ports[0], ports[at], ports[at+1], land, store))
	}
	if f.source, err = agent("source", 2, r.land, filepath.Join(into, "store")); err != nil {
		return out, err
	}
	if home.source, err = agent("home", 4, "vault", from.dir); err != nil {
		return out, err
	}
	if err := home.settled(ctx, "home", 1, from.files); err != nil {
		return out, err
	}
	if err := f.take(ctx, from); err != nil {
		return out, home.source.trouble(err)
	}
	if _, err := home.source.stop(); err != nil {
		return out, err
	}
	home.source = nil
	if f.sink, err = agent("sink", 6, "vault", filepath.Join(into, "store of the sink")); err != nil {
		return out, err
	}
	if err := f.settled(ctx, "source", 1, from.files); err != nil {
		return out, err
	}
	if err := forgetPeak(f.source.cmd.Process.Pid); err != nil { // the peak of when it took the blocks
		return out, err
	}
	return f.leave(ctx, from)
}

// forgetPeak resets VmHWM of a process (proc_pid_clear_refs(5)).
func forgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// take has the home of the blocks drain to the source, and waits until the source has made files of the blocks, if
// they become files.
func (f *fleet) take(ctx context.Context, from source) error {
	answer, _, err := command(ctx, f.binary, "decommission", "--self", "--wait", "--socket", f.socket("home"), "-o", "json", "--reason", "bench")
	if err != nil {
		return err
	}
	if _, _, err := readManifest(answer, from, false); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, unpackWithin(len(from.files.Files)))
	defer cancel()
	client := overSocket(f.socket("source"))
	defer client.CloseIdleConnections()
	for {
		if waiting, err := anyWaits(ctx, client); err != nil || !waiting {
			return err
		}
		if err := pause(ctx, askEvery); err != nil {
			return err
		}
	}
}

// measureRelay measures what it costs a node to carry blocks on that came from another node, compared with blocks of
// its own.
func measureRelay(ctx context.Context, b bench) ([]figure, error) {
	us, err := newLifeboat(ctx, b.binary, filepath.Join(b.g.dir, "relay"), "source", "sink", "home") // not those of the suite transfer
	if err != nil {
		return nil, err
	}
	contenders := []contender{us}
	for _, land := range []string{"vault", "place"} {
		contenders = append(contenders, relay{&lifeboat{label: "landed in the " + land, land: land, binary: us.binary, pki: us.pki}})
		if b.against != "" {
			contenders = append(contenders, relay{&lifeboat{label: "other: landed in the " + land, land: land, binary: b.against, pki: us.pki}})
		}
	}
	if contenders, err = chosen(contenders, b.contenders); err != nil {
		return nil, err
	}
	var all []figure
	for _, s := range b.corpora {
		t, err := measure(ctx, b.g, s, contenders, b.rounds, b.stderr)
		if err != nil {
			return nil, err
		}
		if err := t.printRelay(b.stdout); err != nil {
			return nil, err
		}
		all = append(all, t.relayFigures(b.args)...)
	}
	return all, nil
}

// printRelay writes the table for people.
func (t trial) printRelay(w io.Writer) error {
	var b strings.Builder
	rounds := len(t.outcomes[ours])
	fmt.Fprintf(&b, "\n%s, %.2f GiB, %d rounds, of a node that has them\n", t.size, float64(t.size.bytes())/(1<<30), rounds)
	const line = "%-28s %9s %7s %6s %-19s %6s %6s %8s\n"
	fmt.Fprintf(&b, line, "", "blocks/s", "MiB/s", "ratio", " of each round", "CPU", "ratio", "RSS")
	own := t.row(ours)
	for _, who := range t.names {
		r, label := t.row(who), who
		if who == ours {
			label = "as its own"
		}
		ratios := paired(own.speed, r.speed)
		fmt.Fprintf(&b, line, label, number(t.blocksPerSecond(who), 0), number(median(r.speed), 0), number(median(ratios), 2), few(ratios),
			number(median(r.cpu), 2), number(median(paired(own.cpu, r.cpu)), 2), fmt.Sprintf("%d/%d", r.rss[0]>>20, r.rss[1]>>20))
	}
	b.WriteString("ratio: its own over this line's, median of the rounds. CPU: s/GiB of both sides. RSS: peak MiB, source/sink.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (t trial) relayFigures(args string) (all []figure) {
	own := t.row(ours)
	for _, who := range t.names[1:] {
		r, peer := t.row(who), "as its own"
		all = append(all,
			figure{Suite: "relay", Name: t.size.name + " " + who, Value: rounded(median(r.speed)), Unit: "MiB/s",
				Peer: &peer, PeerValue: new(rounded(median(own.speed))), Ratio: new(rounded(median(paired(r.speed, own.speed)))), Command: args},
			figure{Suite: "relay", Name: t.size.name + " " + who + ", cpu", Value: rounded(median(r.cpu)), Unit: "CPU s/GiB",
				Peer: &peer, PeerValue: new(rounded(median(own.cpu))), Ratio: new(rounded(median(paired(r.cpu, own.cpu)))), Command: args})
	}
	return all
}

// row is what a contender did in each round, timed until its last receipt.
func (t trial) row(who string) (r row) {
	for _, o := range t.outcomes[who] {
		r.add(t.size, o, o.durable)
	}
	return r
}
