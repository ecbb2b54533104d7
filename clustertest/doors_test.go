package clustertest

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator"
)

// door is a port that accepts connections without a certificate.
type door struct {
	name    string
	host    *host
	address string
	tls     *tls.Config
}

func (d door) knock(t *testing.T) net.Conn {
	t.Helper()
	c, err := d.host.Dial(t.Context(), "tcp", d.address)
	if err != nil {
		t.Fatalf("%s: %v", d.name, err)
	}
	if d.tls != nil {
		c = tls.Client(c, d.tls)
	}
	return c
}

func (c *Cluster) doors() []door {
	n, co := c.nodes[0], c.coordinators[0]
	id, err := certs.Load(c.path("tls", "ca.pem"), n.cert, n.key)
	if err != nil {
		c.t.Fatal(err)
	}
	anybody := c.network.attach("anybody")
	return []door{
		{"an agent's peer port", anybody, n.address + ":7412", id.Client([]string{"http/1.1"}, certs.Name{Role: certs.RoleNode, Name: n.name})},
		{"an agent's loopback page", n.host, "127.0.0.1:7413", nil},
		{"a coordinator's page", anybody, co.http(), &tls.Config{InsecureSkipVerify: true}},
		{"a coordinator's way in", anybody, co.grpc(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{api.JoinProtocol}}},
	}
}

// withDoors runs f in a bubble with a coordinator that lets machines in and one agent.
func withDoors(t *testing.T, f func(t *testing.T, c *Cluster)) {
	synctest.Test(t, func(t *testing.T) {
		f(t, New(t, Config{Agents: 1, Coordinator: func(cfg *coordinator.Config) {
			cfg.Issue.CAKey = strings.TrimSuffix(cfg.TLS.CA, ".pem") + ".key"
		}}))
	})
}

// A client that shows no certificate and asks nothing costs a file descriptor. One too many ends the oldest of them, and no other connection.
func TestOldestStrangerMakesPlace(t *testing.T) {
	const most = 4096
	withDoors(t, func(t *testing.T, c *Cluster) {
		for _, d := range c.doors() {
			d.tls = nil
			all := []net.Conn{d.knock(t)}
			synctest.Wait()
			for range most - 1 {
				all = append(all, d.knock(t))
			}
			ended := make(chan int, most)
			for i, conn := range all {
				go func() {
					_, _ = conn.Read(make([]byte, 1))
					ended <- i
				}()
			}
			synctest.Wait()
			select {
			case i := <-ended:
				t.Errorf("%s: connection %d of %d was ended", d.name, i, most)
			default:
			}
			defer d.knock(t).Close()
			synctest.Wait()
			select {
			case i := <-ended:
				if i != 0 {
					t.Errorf("%s: connection %d was ended, want the oldest", d.name, i)
				}
			default:
				t.Errorf("%s: %d strangers have connections", d.name, most+1)
			}
			for _, conn := range all {
				conn.Close()
			}
		}
	})
}

// Headers are bounded at each port: else a client could have the process buffer a megabyte on each connection.
func TestHeadersAreBounded(t *testing.T) {
	withDoors(t, func(t *testing.T, c *Cluster) {
		for _, d := range c.doors() {
			for bytes, want := range map[int]int{12 << 10: http.StatusOK, 24 << 10: http.StatusRequestHeaderFieldsTooLarge} {
				path := "/healthz"
				if strings.HasSuffix(d.name, "way in") {
					path = "/ca"
				}
				conn := d.knock(t)
				dial := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("X", strings.Repeat("y", bytes))
				resp, err := dial.RoundTrip(req)
				if err != nil {
					t.Errorf("%s: %v", d.name, err)
					continue
				}
				resp.Body.Close()
				if resp.StatusCode != want {
					t.Errorf("%s: %d bytes of headers have the answer %d, want %d", d.name, bytes, resp.StatusCode, want)
				}
			}
		}
	})
}

// A node may ask other nodes about a thousand blocks at once. Whoever has its key does not fill their memory with such questions: few are read
// at a time, none for long, and the questions of other nodes are answered meanwhile.
func TestQuestionsOfOneNodeAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Config{Agents: 3})
		const most, patience = 8, 30 * time.Second
		ask := func(from int, body string) net.Conn {
			n := c.nodes[from]
			id, err := certs.Load(c.path("tls", "ca.pem"), n.cert, n.key)
			if err != nil {
				t.Fatal(err)
			}
			conn := door{"peer port", n.host, c.nodes[0].address + ":7412", id.Client([]string{"http/1.1"}, certs.Name{Role: certs.RoleNode, Name: c.nodes[0].name})}.knock(t)
			fmt.Fprintf(conn, "POST /blocks/ HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n%s", body)
			return conn
		}
		answered := func(conn net.Conn, within time.Duration) int {
			conn.SetReadDeadline(time.Now().Add(within))
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				return 0
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		var begun []net.Conn
		for range most {
			begun = append(begun, ask(1, "cache/-/x"))
		}
		time.Sleep(time.Second)
		if got := answered(ask(2, "cache/-/xyz\n"), time.Second); got != http.StatusOK {
			t.Errorf("another node's question has the answer %d", got)
		}
		late := ask(1, "cache/-/xyz\n")
		if got := answered(late, patience-5*time.Second); got != 0 {
			t.Errorf("question %d of one node has the answer %d while the others are read", most+1, got)
		}
		time.Sleep(5 * time.Second)
		for _, conn := range begun {
			if got := answered(conn, time.Second); got != http.StatusBadRequest {
				t.Errorf("a question that did not end within %s has the answer %d", patience, got)
			}
		}
		if got := answered(ask(1, "cache/-/xyz\n"), time.Second); got != http.StatusOK {
			t.Errorf("a question after them has the answer %d", got)
		}
	})
}
