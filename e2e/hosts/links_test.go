package hosts_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// tail is the tail of these stories' drains: the time before a deadline in which nothing is sent.
const tail = 5 * time.Second

// The narrowest links, and the notices that clouds give: at least 95 % of what can be sent before the tail is durable at
// peers when the machine goes, and in the tail the link is silent.
func TestNarrowLinks(t *testing.T) {
	for _, row := range []struct {
		notice time.Duration
		mbits  int64
		files  int
		peers  int
	}{
		{30 * time.Second, 16, 700, 2},  // Google's, Azure's
		{120 * time.Second, 8, 1200, 2}, // EC2's
		{30 * time.Second, 20, 120, 8},  // files of several seconds each, and more peers than a drain keeps
	} {
		t.Run(fmt.Sprintf("%s at %d Mbit to %d", row.notice, row.mbits, row.peers), func(t *testing.T) {
			f := newTown(t, 1+row.peers, fmt.Sprintf("drain: {tail: %s}", tail))
			f.settled()
			a := f.nodes[0]
			rate := row.mbits * 1e6 / 8
			a.fill(row.files, rate*int64(row.notice/time.Second)*3/2) // more than can be carried
			a.on.narrow(row.mbits)
			a.verb("decommission", "--self", "--timeout", row.notice.String()).exits(0)
			deadline := *a.status().Notice.Deadline
			began := deadline.Add(-row.notice)
			silence := deadline.Add(-tail)
			time.Sleep(time.Until(silence.Add(settling)))
			before := a.on.carried()
			time.Sleep(time.Until(deadline))
			if over := a.on.carried() - before; over > goodbyes {
				t.Errorf("%d bytes went to peers in the last %s, want none but %d that end the connections", over, tail-settling, goodbyes)
			}
			m := a.drained()
			could := float64(rate) * silence.Sub(began).Seconds() * payload
			share := float64(m.Bytes.Moved) / could
			fmt.Printf("     %s at %d Mbit to %d: %.1f MB durable of %.1f that the link could carry: %.1f %%\n",
				row.notice, row.mbits, row.peers, float64(m.Bytes.Moved)/1e6, could/1e6, share*100)
			if share < 0.95 {
				t.Errorf("%d bytes are durable at peers, %.1f %% of what the link could carry", m.Bytes.Moved, share*100)
			}
			var held int64
			for _, n := range f.nodes[1:] {
				held += n.status().HeldBytes
			}
			if held < m.Bytes.Moved {
				t.Errorf("peers hold %d bytes, and %d were said to have moved", held, m.Bytes.Moved)
			}
		})
	}
}

const (
	// payload is the share of a link that carries blocks' bytes: of a full Ethernet frame of 1514 bytes, 66 are headers.
	payload = 1448.0 / 1514
	// settling is for how long bytes that left the agent before the tail may still be in the queues of its machine.
	settling = 500 * time.Millisecond
	// goodbyes is the most bytes that may pass in the tail: enough to end the connections and to acknowledge the last
	// receipts.
	goodbyes = 16 << 10
)

// narrow caps what the machine sends to peers. Heartbeats and other traffic have a queue of their own, so only the drain's
// bytes are counted.
func (m *machine) narrow(mbits int64) {
	m.w.t.Helper()
	m.tc("qdisc add dev eth0 root handle 1: htb default 1")
	m.tc("class add dev eth0 parent 1: classid 1:1 htb rate 10gbit")
	m.tc("class add dev eth0 parent 1: classid 1:2 htb rate 10gbit")
	m.tc(fmt.Sprintf("qdisc add dev eth0 parent 1:2 handle 10: tbf rate %dmbit burst 32kb latency 50ms", mbits))
	m.tc("filter add dev eth0 parent 1: protocol ip u32 match ip dport 7412 0xffff flowid 1:2")
}

// carried returns how many bytes have passed the narrow link.
func (m *machine) carried() int64 {
	m.w.t.Helper()
	var all []struct {
		Kind  string
		Bytes int64
	}
	if err := json.Unmarshal(m.tc("-s -j qdisc show dev eth0"), &all); err != nil {
		m.w.t.Fatal(err)
	}
	for _, q := range all {
		if q.Kind == "tbf" {
			return q.Bytes
		}
	}
	m.w.t.Fatal("the link is not narrow")
	return 0
}

// tc runs tc(8) with these arguments in the machine's namespace.
func (m *machine) tc(line string) []byte {
	m.w.t.Helper()
	if err := needs("apt install iproute2", "tc"); err != nil {
		m.w.t.Skip(err)
	}
	out, err := exec.Command("sh", "-c", "ip netns exec "+strconv.Quote(m.ns)+" tc "+line).CombinedOutput()
	if err != nil {
		m.w.t.Fatalf("tc %s: %v\n%s", line, err, out)
	}
	return out
}
