package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// wires connect machines. Each machine is a network namespace with one interface, and all interfaces are on one switch.
// close removes everything.
type wires struct {
	name     string // of the switch's namespace; the machines' names begin with it
	machines []machineNS
}

// machineNS is one machine: its namespace and its address.
type machineNS struct{ ns, ip string }

func newWires(ctx context.Context, name string) (*wires, error) {
	w := &wires{name: fmt.Sprintf("lb%d%s", os.Getpid(), name)}
	if err := w.ip(ctx, "netns add "+w.name); err != nil {
		return nil, err
	}
	return w, w.ip(ctx, "-n "+w.name+" link add sw type bridge", "-n "+w.name+" link set sw up")
}

// add makes another machine.
func (w *wires) add(ctx context.Context) (m machineNS, err error) {
	n := len(w.machines) + 1
	m = machineNS{fmt.Sprintf("%s-%d", w.name, n), fmt.Sprintf("10.78.0.%d", n)}
	if err := w.ip(ctx, "netns add "+m.ns); err != nil {
		return m, err
	}
	w.machines = append(w.machines, m)
	return m, w.ip(ctx,
		fmt.Sprintf("-n %s link add w%d type veth peer name eth0 netns %s", w.name, n, m.ns),
		fmt.Sprintf("-n %s link set w%d master sw up", w.name, n),
		fmt.Sprintf("-n %s link set lo up", m.ns),
		fmt.Sprintf("-n %s addr add %s/24 dev eth0", m.ns, m.ip),
		fmt.Sprintf("-n %s link set eth0 up", m.ns))
}

func (w *wires) ip(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		if _, _, err := command(ctx, "ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// close removes all namespaces, even if the caller's context has ended.
func (w *wires) close() error {
	var errs []error
	for _, m := range w.machines {
		errs = append(errs, w.ip(context.Background(), "netns del "+m.ns))
	}
	return errors.Join(append(errs, w.ip(context.Background(), "netns del "+w.name))...)
}

// inside returns the arguments of ip(8) that run a program on the machine.
func (m machineNS) inside(program string, args ...string) []string {
	return append([]string{"netns", "exec", m.ns, program}, args...)
}

func (m machineNS) tc(ctx context.Context, line string) ([]byte, error) {
	out, _, err := command(ctx, "ip", m.inside("tc", strings.Fields(line)...)...)
	return out, err
}

// narrow caps what the machine sends to that port of the others. Other traffic has a queue of its own, so only what goes to
// that port is counted.
func (m machineNS) narrow(ctx context.Context, mbits int, port int) error {
	for _, line := range []string{
		"qdisc add dev eth0 root handle 1: htb default 1",
		"class add dev eth0 parent 1: classid 1:1 htb rate 10gbit",
		"class add dev eth0 parent 1: classid 1:2 htb rate 10gbit",
		fmt.Sprintf("qdisc add dev eth0 parent 1:2 handle 10: tbf rate %dmbit burst 32kb latency 50ms", mbits),
		fmt.Sprintf("filter add dev eth0 parent 1: protocol ip u32 match ip dport %d 0xffff flowid 1:2", port),
	} {
		if _, err := m.tc(ctx, line); err != nil {
			return err
		}
	}
	return nil
}

// carried returns how many bytes have passed the narrow link, frame headers included.
func (m machineNS) carried(ctx context.Context) (int64, error) {
	out, err := m.tc(ctx, "-s -j qdisc show dev eth0")
	if err != nil {
		return 0, err
	}
	var all []struct {
		Kind  string
		Bytes int64
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return 0, fmt.Errorf("read what tc counted: %w", err)
	}
	for _, q := range all {
		if q.Kind == "tbf" {
			return q.Bytes, nil
		}
	}
	return 0, fmt.Errorf("the link of %s is not narrow", m.ns)
}
