package hosts_test

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"
)

// six leaves the machine with one address, of IPv6.
func (m *machine) six() {
	m.w.t.Helper()
	var n int
	if _, err := fmt.Sscanf(m.wire, "w%d", &n); err != nil {
		m.w.t.Fatal(err)
	}
	ip := fmt.Sprintf("fd77::%d", n)
	m.w.batch(m.ns, "addr flush dev eth0", "addr add "+ip+"/64 dev eth0 nodad")
	m.ip = "[" + ip + "]"
}

// metadataOfSix serves EC2's metadata only where a host without IPv4 looks for it.
func (h *host) metadataOfSix() {
	h.t.Helper()
	const address = "fd00:ec2::254" // docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html
	h.on.w.batch(h.on.ns, "addr del 169.254.169.254/32 dev lo", "addr add "+address+"/128 dev lo nodad")
	var l net.Listener
	err := h.on.within(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(address, "80"))
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	server := &http.Server{Handler: h.cloud}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	h.t.Cleanup(func() {
		if err := server.Close(); err != nil {
			h.t.Error(err)
		}
		if err := ignore(<-served, http.ErrServerClosed); err != nil {
			h.t.Error(err)
		}
	})
}

// No machine has an IPv4 address. They join, one hears of an interruption from EC2's IPv6 address, and empties itself.
func TestSixOnly(t *testing.T) {
	bootable(t)
	f := newField(t)
	f.operator.six()
	first := f.rack("first")
	var nodes []*host
	for _, name := range []string{"node-a", "node-b", "node-c"} {
		nodes = append(nodes, f.rack(name))
	}
	for _, h := range append([]*host{first}, nodes...) {
		h.on.six()
		h.metadataOfSix()
		h.boot()
		h.install("lifeboat.deb")
	}
	join := first.found()
	for _, h := range nodes {
		h.write("etc/lifeboat/agent.d/10-store.yaml", 0o644, "receive: {reserve_bytes: 16MiB}",
			`cloud: {provider: ec2, endpoint: "http://[fd00:ec2::254]"}`,
			"stores: [{name: cache, kind: cache, layout: files, paths: [/cache]}]")
		h.does("lifeboat", join...)
	}
	for _, h := range nodes {
		f.until(h.is("ACTIVE"))
		f.until(h.knows(2))
	}
	a := nodes[0]
	a.fill(8, 4<<20)
	a.cloud.Interrupt("terminate", time.Now().Add(2*time.Minute).Truncate(time.Second))
	if m := a.drained(); m.Incident.Source != "ec2" {
		t.Errorf("got an incident from %s, want one from ec2", m.Incident.Source)
	}
	f.until(a.is("DECOMMISSIONED"))
	a.cutPower()
	a.allMoved()
	a.readBack()
	f.nobodyLost()
}
