package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"path/filepath"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/certs"
)

// A coordinator takes a certificate of the herd for a node's.
func TestHerdIsKnownByName(t *testing.T) {
	dir := t.TempDir()
	if err := certs.InitCA(dir); err != nil {
		t.Fatal(err)
	}
	ca, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := issueNode(ca, "node-00007", 8)
	if err != nil {
		t.Fatal(err)
	}
	id, err := certs.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	file, key, err := certs.Issue(dir, certs.Name{Role: certs.RoleCoordinator, Name: "c1"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c1, err := certs.Load(filepath.Join(dir, "ca.pem"), file, key)
	if err != nil {
		t.Fatal(err)
	}
	own := id.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator})
	own.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	l, err := tls.Listen("tcp", "127.0.0.1:0", c1.Server([]string{"h2"}, certs.RoleNode))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan error, 1)
	go func() {
		conn, err := tls.Dial("tcp", l.Addr().String(), own)
		if err == nil {
			defer conn.Close()
			_, err = conn.Write([]byte("x"))
		}
		ended <- err
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	name, err := certs.PeerName(conn.(*tls.Conn).ConnectionState())
	if want := (certs.Name{Role: certs.RoleNode, Name: "node-00007"}); err != nil || name != want {
		t.Errorf("got %v (%v), want %v", name, err, want)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Only announcements of the incident that is waited for count; the time is that of the last one.
func TestAudienceHears(t *testing.T) {
	a := &audience{ctx: context.Background(), wanted: []byte("inc-7")}
	a.hear("WorkerDecommission", []byte(`{"data":{"incident":"inc-6"}}`))
	a.hear("NodeRecommissioned", []byte("inc-7"))
	if n := a.heard.Load(); n != 0 {
		t.Errorf("got %d who have it, want none", n)
	}
	began := time.Now()
	for range 3 {
		a.hear("WorkerDecommission", []byte(`{"data":{"incident":"inc-7"}}`))
	}
	if n := a.heard.Load(); n != 3 || a.last.Before(began) {
		t.Errorf("got %d who have it at %v, want 3 after %v", n, a.last, began)
	}
}

func TestTableOfAgents(t *testing.T) {
	f := herdFigures{agents: 1000, beats: 100, watched: time.Second, cpu: 10 * time.Millisecond, before: memory{rss: 1 << 20}, after: memory{rss: 101 << 20},
		acks: newSpread([]time.Duration{time.Millisecond}), notices: newSpread([]time.Duration{2 * time.Millisecond})}
	var b bytes.Buffer
	if err := f.print(&b); err != nil {
		t.Fatal(err)
	}
	checkWidth(t, b.String())
	if f.perBeat() != 100 || f.perAgent() != 102.4 {
		t.Errorf("got %g us for a beat and %g KiB for an agent, want 100 and 102.4", f.perBeat(), f.perAgent())
	}
	for _, one := range f.figures("go run ./bench") {
		if one.Suite != "agents" || one.Unit == "" || one.Command == "" {
			t.Errorf("got %+v", one)
		}
	}
}
