package e2e_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/certs"
)

// reconfigure writes the node's file anew.
func (n *node) reconfigure(extra ...string) { n.f.write(n.host+".yaml", n.config(extra...)...) }

// refusesToStart runs the daemon. It must end by itself, with that exit code and these words.
func (n *node) refusesToStart(code int, words ...string) {
	n.f.t.Helper()
	run(n.f.t, nil, nil, binary, n.args...).exits(code).tells(words...)
}

func TestWrongSettingsAreRefused(t *testing.T) {
	f := newFleet(t)
	a := f.agent("host-a")
	a.reconfigure("drain: {connections: 2}")
	file := filepath.Join(f.dir, "host-a.yaml")
	line := fmt.Sprintf("host-a.yaml:%d:", len(a.config("drain: {connections: 2}")))
	a.refusesToStart(2, line, "drain.connections", "connections_per_peer")
	run(t, nil, nil, binary, "config", "check", file).exits(2).tells(line, "drain.connections")

	a.reconfigure("drain: {connections_per_peer: 99}", "cloud: {provider: oracle}")
	run(t, nil, nil, binary, "config", "check", file).exits(2).tells("connections_per_peer: 99", "oracle") // both at once
	a.reconfigure()
	run(t, nil, nil, binary, "config", "check", file).exits(0)
	if err := os.WriteFile(file, []byte("node: {name: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.refusesToStart(2, "host-a.yaml:")
	run(t, nil, nil, binary, "agent", "--config", filepath.Join(f.dir, "none.yaml")).tells("none.yaml")

	f.write("bad.yaml", "name: c1", "lease: 1s")
	run(t, nil, nil, binary, "coordinator", "--config", filepath.Join(f.dir, "bad.yaml")).exits(2).tells("bad.yaml:2:", "lease")
}

func TestWrongCertificatesAreRefused(t *testing.T) {
	f := newFleet(t)
	a, b := f.agent("host-a"), f.agent("host-b")
	a.reconfigure("tls: {ca: tls/ca.pem, cert: tls/none.pem, key: tls/host-a.key}")
	a.refusesToStart(1, "none.pem")
	a.reconfigure("tls: {ca: tls/ca.pem, cert: tls/host-b.pem, key: tls/host-b.key}")
	a.refusesToStart(1, `"node host-b"`, `"node host-a"`)
	a.reconfigure("tls: {ca: tls/ca.pem, cert: tls/host-a.pem, key: tls/host-b.key}")
	a.refusesToStart(1, "host-b.key")
	open := filepath.Join(f.tls, "host-b.key")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	b.refusesToStart(1, "host-b.key", "chmod")
	f.write("c.yaml", "name: c1", "data_dir: "+f.dir+"/x", fmt.Sprintf("listen: {grpc: %q, http: %q}", freeAddress(t), freeAddress(t)),
		"tls: {ca: tls/ca.pem, cert: tls/host-a.pem, key: tls/host-a.key}")
	run(t, nil, nil, binary, "coordinator", "--config", filepath.Join(f.dir, "c.yaml")).exits(1).tells("node host-a", "role coordinator")

	f.coordinator.start()
	f.until(func() error {
		if s := f.verb("status"); s.code != 0 {
			return fmt.Errorf("%s", s.stderr)
		}
		return nil
	})
	at := []string{"LIFEBOAT_COORDINATOR=" + f.grpc}
	run(t, nil, at, binary, "nodes").exits(2).tells("--tls-dir")
	run(t, nil, append(at, "LIFEBOAT_TLS_DIR="+filepath.Join(f.dir, "none")), binary, "nodes").exits(1).tells("ca.pem")
	foreign := filepath.Join(f.dir, "foreign")
	run(t, nil, nil, binary, "tls", "init", "--dir", foreign).exits(0)
	run(t, nil, append(at, "LIFEBOAT_TLS_DIR="+foreign), binary, "nodes").exits(1).tells("certificate is not signed by our CA")

	// A node's certificate may look, not command.
	asNode := filepath.Join(f.dir, "as-node")
	if err := os.Mkdir(asNode, 0o700); err != nil {
		t.Fatal(err)
	}
	for to, from := range map[string]string{"ca.pem": "ca.pem", "operator.pem": "host-a.pem", "operator.key": "host-a.key"} {
		b, err := os.ReadFile(filepath.Join(f.tls, from))
		if err == nil {
			err = os.WriteFile(filepath.Join(asNode, to), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run(t, nil, append(at, "LIFEBOAT_TLS_DIR="+asNode), binary, "nodes").exits(0)
	run(t, nil, append(at, "LIFEBOAT_TLS_DIR="+asNode), binary, "decommission", "host-a").exits(1).tells("node host-a", "operator")

	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/nodes": 401, "/events": 401} {
		anyone := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
		resp, err := anyone.Get("https://" + f.http + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("GET %s without a certificate: got %d, want %d", path, resp.StatusCode, want)
		}
	}
	run(t, nil, []string{"LIFEBOAT_COORDINATOR=" + freeAddress(t), "LIFEBOAT_TLS_DIR=" + f.tls}, binary, "nodes").exits(1).tells("does not answer")
	run(t, nil, []string{"LIFEBOAT_SOCKET=" + f.socks + "/none"}, binary, "status").exits(1).tells("does the agent run?")
}

func TestForeignAuthorityIsRefused(t *testing.T) {
	f := newFleet(t)
	a, b := f.agent("host-a"), f.agent("host-b")
	stranger := f.agent("host-z")
	a.fill(3, 50<<10)
	foreign := filepath.Join(f.dir, "foreign")
	run(t, nil, nil, binary, "tls", "init", "--dir", foreign).exits(0)
	run(t, nil, nil, binary, "tls", "issue", "--dir", foreign, "--node", "host-z").exits(0)
	stranger.reconfigure("tls: {ca: foreign/ca.pem, cert: foreign/host-z.pem, key: foreign/host-z.key}")
	f.coordinator.start()
	for _, n := range f.nodes {
		n.start()
	}
	f.until(a.is("ACTIVE"))
	f.until(b.is("ACTIVE"))
	f.until(func() error {
		if !strings.Contains(stranger.logged(), "no heartbeat gets through") {
			return fmt.Errorf("host-z does not say that it is refused")
		}
		return nil
	})
	if s := stranger.verb("status").exits(0); !strings.Contains(s.stdout, "certificate") {
		t.Errorf("host-z's status does not say why it is refused:\n%s", s.stdout)
	}
	f.verb("node", "host-z").exits(3)

	// An agent does not answer a client with a foreign certificate, in neither protocol.
	id, err := certs.LoadDir(foreign)
	if err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{"http/1.1", "lifeboat/1"} {
		conf := id.Client([]string{protocol}, certs.Name{Role: certs.RoleNode, Name: "host-b"})
		conf.InsecureSkipVerify, conf.VerifyConnection = true, nil // the stranger accepts any server
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 30 * time.Second}, "tcp", b.peer, conf)
		if err == nil { // in TLS 1.3 the client learns only when it reads that it is refused
			conn.SetDeadline(time.Now().Add(5 * time.Second))
			fmt.Fprintf(conn, "GET /blocks/%s HTTP/1.1\r\nHost: b\r\n\r\n", a.blocks[0].id)
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
		}
		if err == nil {
			t.Errorf("host-b answers a foreign certificate over %s", protocol)
		}
	}

	// An agent sends no blocks to a machine that is not the node it should be.
	f.coordinator.kill()
	a.kill()
	type peer struct {
		Node    string `json:"node"`
		Address string `json:"address"`
		Room    int64  `json:"room_bytes"`
	}
	text, err := json.Marshal([]peer{{"host-z", stranger.peer, 1 << 30}, {"host-c", b.peer, 1 << 30}})
	if err == nil {
		err = os.WriteFile(filepath.Join(a.data(), "peers.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.start()
	f.until(func() error {
		if len(a.status().Peers) != 2 {
			return fmt.Errorf("host-a does not know its false peers")
		}
		return nil
	})
	a.verb("decommission", "--self", "--timeout", brief, "--wait").exits(4)
	m := decode[manifestView](a.verb("manifest", "--self", "-o", "json").exits(4))
	a.namesLost(m, "authority", `presented "node host-b", want "node host-c"`)
	if got := b.status().Held + stranger.status().Held; got != 0 {
		t.Errorf("%d blocks landed at those who are not who they should be", got)
	}
}

func TestStrangerOnTheSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	f := newFleet(t)
	a := f.agent("host-a")
	a.fill(2, 10<<10)
	f.start()
	env := []string{"LIFEBOAT_SOCKET=" + a.socket}
	const nobody = 65534
	stranger, member := &syscall.Credential{Uid: nobody, Gid: nobody}, &syscall.Credential{Uid: nobody, Gid: 0} // the socket belongs to root's group
	run(t, stranger, env, binary, "status").exits(1).tells("permission denied")
	run(t, stranger, env, binary, "decommission", "--self").exits(1).tells("permission denied")
	run(t, member, env, binary, "status").exits(0)
	run(t, member, env, binary, "get", a.blocks[0].id).exits(0)
	run(t, member, env, binary, "decommission", "--self").exits(1).tells("uid 65534", "as root")
	run(t, member, env, binary, "cancel").exits(1).tells("uid 65534")
	run(t, member, env, binary, "value", a.blocks[0].id+"=1h").exits(1).tells("uid 65534")
	if n := a.status().Notice; n != nil {
		t.Errorf("a stranger made the node leave: %+v", n)
	}
}
