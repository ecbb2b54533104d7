package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"iter"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/heartbeat"
)

// herd is many agents as a coordinator sees them: real heartbeat clients with certificates of their own, and nothing
// behind them.
type herd struct {
	of  *coordinators
	all []*beater
	wg  sync.WaitGroup

	mu   sync.Mutex // guards acks
	acks []time.Duration
}

// beater is one agent of a herd.
type beater struct {
	herd   *herd
	host   *api.Status
	client *heartbeat.Client

	mu     sync.Mutex // guards what follows
	notice *api.Notice
	asked  time.Time // when status was last called
}

// newHerd makes agents and starts none of them. Their certificates stay in memory: to write ten thousand of them to disk
// takes longer than all that is measured.
func newHerd(c *coordinators, many int) (*herd, error) {
	return newHerdOf(c, many, fourDisks, nil, nil)
}

// newHerdOf makes agents with the status host; held returns the blocks that an agent holds, and dial makes the
// connections.
func newHerdOf(
	c *coordinators, many int, host *api.Status, held func(agent int) iter.Seq2[*api.HeldBlock, error], dial func(context.Context, string, string) (net.Conn, error),
) (*herd, error) {
	ca, err := tls.LoadX509KeyPair(filepath.Join(c.pki, "ca.pem"), filepath.Join(c.pki, "ca.key"))
	if err != nil {
		return nil, err
	}
	usual := c.desk.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator})
	h := &herd{of: c}
	for i := range many {
		name := fmt.Sprintf("node-%05d", i)
		cert, err := issueNode(ca, name, int64(i)+1)
		if err != nil {
			return nil, err
		}
		own := usual.Clone()
		own.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
		a := &beater{herd: h, host: host}
		var all func() iter.Seq2[*api.HeldBlock, error]
		if held != nil {
			all = func() iter.Seq2[*api.HeldBlock, error] { return held(i) }
		}
		a.client, err = heartbeat.New(heartbeat.Config{
			Node: name, Incarnation: "inc-of-" + name, PeerAddress: fmt.Sprintf("10.%d.%d.%d:7412", i>>16, i>>8&255, i&255),
			Place:        func() (zone, pool string) { return fmt.Sprintf("zone-%c", 'a'+i%3), fmt.Sprintf("pool-%d", i%7) },
			Version:      "bench",
			Coordinators: c.addresses(), TLS: own, Status: a.status, Held: all, Dial: dial,
		})
		if err != nil {
			return nil, err
		}
		h.all = append(h.all, a)
	}
	return h, nil
}

// issueNode is what `lifeboat tls issue --node` does, in memory.
func issueNode(ca tls.Certificate, name string, serial int64) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{OrganizationalUnit: []string{"node"}, CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{{Scheme: "lifeboat", Host: "node", Path: "/" + name}},
	}, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// status returns what an agent says of itself in a beat: its host's status, and its notice. The client calls it before
// every beat, so it is also where the answer to the beat before is timed: from the call of status until the answer, as an
// agent sees it.
func (a *beater) status() *api.Status {
	s := proto.CloneOf(a.host)
	_, answered, _ := a.client.Health()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.asked.IsZero() && answered.After(a.asked) {
		a.herd.add(answered.Sub(a.asked))
	}
	a.asked = time.Now()
	s.Notice = a.notice
	return s
}

// leave puts a notice into all later beats of the agent.
func (a *beater) leave(n *api.Notice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notice = n
}

func (h *herd) add(ack time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acks = append(h.acks, ack)
}

// samples are the acks since the last call.
func (h *herd) samples() []time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.acks
	h.acks = nil
	return all
}

var fourDisks = func() *api.Status {
	s := &api.Status{RoomBytes: 3 << 40, HeldBlocks: 1234, HeldBytes: 77 << 30, Stores: []*api.StoreInfo{
		{Name: "cache", Kind: "cache", Layout: "files", Land: "vault"}, {Name: "spark", Kind: "shuffle", Layout: "spark", Land: "place"},
	}}
	for i := range 4 {
		s.Disks = append(s.Disks, &api.Disk{
			Path: fmt.Sprintf("/mnt/d%d", i), Health: "HEALTHY", TotalBytes: 1 << 40, UsableBytes: 700 << 30, Since: durationpb.New(time.Hour),
			Mount: fmt.Sprintf("/mnt/d%d", i), Device: fmt.Sprintf("nvme%dn1", i), Filesystem: "xfs", Kind: "ssd", FreeBytes: 710 << 30,
			Inodes: proto.Int64(1 << 26), InodesFree: proto.Int64(1 << 25), Slots: proto.Int64(16 << 10), FreeSlots: proto.Int64(11 << 10),
			FlushBytesPerSecond: proto.Int64(900 << 20), FetchBytesPerSecond: proto.Int64(1500 << 20),
		})
	}
	return s
}()
