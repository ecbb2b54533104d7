package hosts_test

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// joined makes a fleet of a coordinator that issues certificates, and nodes that joined it with a token.
func (f *town) joined(names ...string) (first *host, join []string, nodes []*host) {
	f.t.Helper()
	first = f.shelf("first")
	join = first.found()
	for _, name := range names {
		h := f.shelf(name)
		h.write("etc/lifeboat/agent.d/10-store.yaml", 0o644, "receive: {reserve_bytes: 16MiB}", "cloud: {provider: none}",
			"stores: [{name: cache, kind: cache, layout: files, paths: [/cache]}]")
		h.does("lifeboat", join...)
		nodes = append(nodes, h)
	}
	for _, h := range nodes {
		f.until(h.is("ACTIVE"))
	}
	return first, join, nodes
}

const nodeCert = "var/lib/lifeboat/tls/node.pem"

// certificate reads the certificate that the node keeps.
func (h *host) certificate() *x509.Certificate {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.disk, nodeCert))
	if err != nil {
		h.t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		h.t.Fatal(err)
	}
	return cert
}

// recertify replaces it by one of the same name and key that is valid between two instants.
func (h *host) recertify(from, until time.Time) {
	h.t.Helper()
	ca, err := tls.LoadX509KeyPair(filepath.Join(h.f.tls, "ca.pem"), filepath.Join(h.f.tls, "ca.key"))
	if err != nil {
		h.t.Fatal(err)
	}
	old := h.certificate()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: old.Subject, URIs: old.URIs, NotBefore: from, NotAfter: until,
		BasicConstraintsValid: true, KeyUsage: old.KeyUsage, ExtKeyUsage: old.ExtKeyUsage,
	}, ca.Leaf, old.PublicKey, ca.PrivateKey)
	if err != nil {
		h.t.Fatal(err)
	}
	h.write(nodeCert, 0o644, strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))))
}

// A certificate has spent three fifths of its life. It is renewed while the agent runs, and the blocks that the agent holds
// can be read afterwards.
func TestCertificateIsRenewed(t *testing.T) {
	bootable(t)
	f := newField(t)
	_, _, nodes := f.joined("node-a", "node-b")
	a, b := nodes[0], nodes[1]
	a.fill(8, 1<<20)
	f.until(a.knows(1))
	f.verb("decommission", a.host, "--timeout", "60s", "--wait").exits(0)
	a.cutPower()

	b.recertify(time.Now().Add(-time.Hour), time.Now().Add(40*time.Minute))
	b.does("systemctl", "restart", "lifeboat-agent")
	pid := b.property("MainPID")
	f.until(func() error {
		if left := time.Until(b.certificate().NotAfter); left < 24*time.Hour {
			return fmt.Errorf("the certificate is good for %s", left)
		}
		return nil
	})
	f.until(func() error { return b.journalTells("the certificate was renewed") })
	a.readBack()
	if now := b.property("MainPID"); now != pid {
		t.Errorf("the agent's PID is %s and was %s", now, pid)
	}
	f.until(b.is("ACTIVE"))
}

// triesInPeace fails the story unless the unit's journal has that word, and the unit tries again now and then: 1 to 3 times
// in 25 s.
func (h *host) triesInPeace(word string) {
	h.t.Helper()
	h.try("systemctl", "restart", "lifeboat-agent") // it reports that the restart failed
	h.f.until(func() error { return h.journalTells(word) })
	before, _ := strconv.Atoi(h.property("NRestarts"))
	time.Sleep(25 * time.Second)
	after, _ := strconv.Atoi(h.property("NRestarts"))
	if n := after - before; n < 1 || n > 3 {
		h.t.Errorf("an agent that cannot start was started %d times in 25 s, want 2 or so", n)
	}
	if s := h.try("systemctl", "status", "--no-pager", "lifeboat-agent"); !strings.Contains(s.stdout, word) {
		h.t.Errorf("systemctl status does not tell of %q:\n%s", word, s.stdout)
	}
}

// A certificate expired while the machine was away. The unit says so, tries again now and then, and is healed by joining
// again.
func TestCertificateExpired(t *testing.T) {
	bootable(t)
	f := newField(t)
	_, join, nodes := f.joined("node-a")
	a := nodes[0]
	id := a.seen().ID
	a.recertify(time.Now().Add(-2*time.Hour), time.Now().Add(-time.Minute))
	a.triesInPeace("certificate expired")
	a.does("lifeboat", join...)
	f.until(a.is("ACTIVE"))
	if got := a.seen().ID; got != id {
		t.Errorf("the node's id is %s, and was %s", got, id)
	}
}

// The machine's clock is behind the beginning of its certificate. The unit says so, and starts once the clock has come that
// far.
func TestCertificateOfTomorrow(t *testing.T) {
	bootable(t)
	f := newField(t)
	_, _, nodes := f.joined("node-a")
	a := nodes[0]
	begins := time.Now().Add(50 * time.Second)
	a.recertify(begins, begins.Add(24*time.Hour))
	a.triesInPeace("check the clock")
	f.until(a.is("ACTIVE"))
	if time.Now().Before(begins) {
		t.Error("the node is in the fleet with a certificate of a time to come")
	}
}

// The host has another name after a reboot. The node keeps the name in its certificate.
func TestHostIsRenamed(t *testing.T) {
	bootable(t)
	f := newTown(t, 1)
	f.settled()
	h := f.newHost("ann")
	id := h.seen().ID
	h.cutPower()
	h.write("etc/hostname", 0o644, "beth")
	h.boot()
	if got := strings.TrimSpace(h.does("hostname")); got != "beth" {
		t.Fatalf("the host is %q, want beth", got)
	}
	f.until(h.is("ACTIVE"))
	if got := h.seen().ID; got != id {
		t.Errorf("the node's id is %s, and was %s", got, id)
	}
	f.verb("node", "beth").exits(3)
}
