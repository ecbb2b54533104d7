package hosts_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// namespaces is where ip(8) keeps the named namespaces.
const namespaces = "/run/netns"

// network is the wires of one story: a switch in a namespace of its own, and a namespace at the other end of each wire.
type network struct {
	t        *testing.T
	name     string
	machines int
}

// machine is a namespace on the network, with an address and a loopback of its own.
type machine struct {
	w        *network
	name     string
	ns, wire string // the namespace, and the switch's end of the wire
	ip       string
}

var networks atomic.Int32 // made so far; all stories share the kernel's names of namespaces

func newNetwork(t *testing.T) *network {
	t.Helper()
	w := &network{t: t, name: fmt.Sprintf("lb%d", networks.Add(1))}
	ip(t, "netns", "add", w.name)
	t.Cleanup(func() { ip(t, "netns", "del", w.name) })
	w.batch(w.name, "link add sw type bridge", "link set sw up")
	return w
}

// machine adds a machine. Its routing rules are those of a plain host, except that the table of local addresses comes
// second: a rule before it can make the host deaf to another. (Packet filters could do that too, but are not installed
// everywhere.)
func (w *network) machine(name string) *machine {
	w.t.Helper()
	w.machines++
	m := &machine{w: w, name: name, ns: w.name + "-" + name, wire: fmt.Sprintf("w%d", w.machines), ip: fmt.Sprintf("10.77.0.%d", w.machines)}
	ip(w.t, "netns", "add", m.ns)
	w.t.Cleanup(func() { ip(w.t, "netns", "del", m.ns) })
	w.batch(w.name, fmt.Sprintf("link add %s type veth peer name eth0 netns %s", m.wire, m.ns), fmt.Sprintf("link set %s master sw up", m.wire))
	w.batch(m.ns, "link set lo up", "addr add "+m.ip+"/24 dev eth0", "link set eth0 up",
		"rule add pref 100 lookup local", "rule del pref 0")
	return m
}

// deafTo drops silently what comes from the others: half a cut. It affects open connections too.
func (m *machine) deafTo(others ...*machine) {
	m.w.t.Helper()
	var lines []string
	for _, o := range others {
		lines = append(lines, "rule add pref 10 from "+o.ip+" blackhole")
	}
	m.w.batch(m.ns, lines...)
}

// hears undoes deafTo.
func (m *machine) hears(others ...*machine) {
	m.w.t.Helper()
	var lines []string
	for _, o := range others {
		lines = append(lines, "rule del pref 10 from "+o.ip+" blackhole")
	}
	m.w.batch(m.ns, lines...)
}

// cut parts two groups: no machine of one hears any of the other. The returned func heals the cut.
func cut(these, those []*machine) (heal func()) {
	for _, m := range these {
		m.deafTo(those...)
	}
	for _, m := range those {
		m.deafTo(these...)
	}
	return func() {
		for _, m := range these {
			m.hears(those...)
		}
		for _, m := range those {
			m.hears(these...)
		}
	}
}

// unplug and plug pull the machine's wire out of the switch, and put it back.
func (m *machine) unplug() { m.w.t.Helper(); m.w.batch(m.w.name, "link set "+m.wire+" down") }
func (m *machine) plug()   { m.w.t.Helper(); m.w.batch(m.w.name, "link set "+m.wire+" up") }

// within runs do in the machine's network. Sockets that do opens on its goroutine stay in that network.
func (m *machine) within(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine, so no other goroutine gets into this network
		done <- func() error {
			ns, err := os.Open(filepath.Join(namespaces, m.ns))
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter the namespace of %s: %w", m.name, err)
			}
			return do()
		}()
	}()
	return <-done
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// batch runs lines of ip(8) in a namespace.
func (w *network) batch(ns string, lines ...string) {
	w.t.Helper()
	cmd := exec.Command("ip", "-n", ns, "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("in %s: ip: %v\n%s\n%s", ns, err, strings.Join(lines, "\n"), out)
	}
}
