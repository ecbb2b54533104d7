package e2e_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/client"
)

// door is one way to read an agent's blocks over HTTP.
type door struct {
	name   string
	url    string
	client *http.Client
	header http.Header
}

func newDoor(name, url string, t *http.Transport) door {
	t.DisableKeepAlives = true
	return door{name, url, &http.Client{
		Transport: t, Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, http.Header{}}
}

// onSocket reads over the agent's socket, as curl --unix-socket does.
func (n *node) onSocket() door {
	return newDoor(n.host+"'s socket", "http://agent", &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", n.socket)
	}})
}

// onPeer reads at the peer address, with the operator's certificate.
func (n *node) onPeer() door {
	n.f.t.Helper()
	id, err := certs.LoadDir(n.f.tls)
	if err != nil {
		n.f.t.Fatal(err)
	}
	return newDoor(n.host+"'s peer address", "https://"+n.peer, &http.Transport{
		TLSClientConfig: id.Client([]string{"http/1.1"}, certs.Name{Role: certs.RoleNode, Name: n.host}),
	})
}

// onLoopback reads at the loopback address, with a bearer token.
func (n *node) onLoopback(token string) door {
	d := newDoor(n.host+"'s loopback address", "http://"+n.http, &http.Transport{})
	if token != "" {
		d.header.Set("Authorization", "Bearer "+token)
	}
	return d
}

// alone has the agent answer only from what it holds itself, as it does when another agent asks.
func (d door) alone() door {
	d.header = d.header.Clone()
	d.header.Set("Lifeboat-Hop", "1")
	return d
}

type answer struct {
	code   int
	body   []byte
	header http.Header
}

func (d door) ask(t *testing.T, method, id, span string) (answer, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.url+"/blocks/"+id, nil)
	if err != nil {
		return answer{}, err
	}
	req.Header = d.header.Clone()
	if span != "" {
		req.Header.Set("Range", "bytes="+span)
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, body, resp.Header}, err
}

func (d door) get(t *testing.T, id, span string) answer {
	t.Helper()
	a, err := d.ask(t, http.MethodGet, id, span)
	if err != nil {
		t.Fatalf("%s: GET %s: %v", d.name, id, err)
	}
	return a
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// atOnce bounds how many blocks are read at the same time.
const atOnce = 4

// serves fails the test unless each block comes through the door byte for byte.
func (d door) serves(t *testing.T, blocks []block) {
	t.Helper()
	if err := d.served(t, blocks); err != nil {
		t.Error(err)
	}
}

// served returns an error for a block that the door does not serve byte for byte.
func (d door) served(t *testing.T, blocks []block) error {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, b := range blocks {
		g.Go(func() error {
			a, err := d.ask(t, http.MethodGet, b.id, "")
			if err != nil {
				return fmt.Errorf("%s: GET %s: %w", d.name, b.id, err)
			}
			if a.code != http.StatusOK || sum(a.body) != b.sha256 {
				return fmt.Errorf("%s: GET %s: got status %d and %d bytes of sum %s, want 200 and %d of %s", d.name, b.id, a.code, len(a.body), sum(a.body), b.bytes, b.sha256)
			}
			return nil
		})
	}
	return g.Wait()
}

// reads fails the test unless a program with package client reads each block byte for byte through those
// agents.
func (f *fleet) reads(blocks []block, agents ...string) {
	f.t.Helper()
	id, err := certs.LoadDir(f.tls)
	if err != nil {
		f.t.Fatal(err)
	}
	from, err := client.NewBlocks(client.BlocksConfig{Agents: agents, TLS: id.Client([]string{"http/1.1"}, certs.Name{Role: certs.RoleNode})})
	if err != nil {
		f.t.Fatal(err)
	}
	defer from.Close()
	for _, b := range blocks {
		r, err := from.Open(f.t.Context(), b.id)
		if err != nil {
			f.t.Errorf("by %v: %v", agents, err)
			continue
		}
		body, err := io.ReadAll(r)
		if r.Close(); err != nil || sum(body) != b.sha256 {
			f.t.Errorf("%s by %v: got %d bytes of sum %s, %v, want %d of %s", b.id, agents, len(body), sum(body), err, b.bytes, b.sha256)
		}
	}
	if _, err := from.Open(f.t.Context(), "cache/-/never"); !errors.Is(err, client.ErrUnknown) {
		f.t.Errorf("got %v, want %v", err, client.ErrUnknown)
	}
}

// gets fails the test unless `lifeboat get` prints each block byte for byte.
func (f *fleet) gets(blocks []block) {
	f.t.Helper()
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, b := range blocks {
		g.Go(func() error {
			s := f.verb("get", b.id)
			if s.code != 0 || sum([]byte(s.stdout)) != b.sha256 {
				return fmt.Errorf("get %s: exit code %d, %d bytes of sum %s, want %d of %s: %s", b.id, s.code, len(s.stdout), sum([]byte(s.stdout)), b.bytes, b.sha256, s.stderr)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		f.t.Error(err)
	}
}

// few picks blocks evenly from all of them, so that each kind is among those that are read.
func few(blocks []block, n int) (some []block) {
	for i := range min(n, len(blocks)) {
		some = append(some, blocks[i*len(blocks)/min(n, len(blocks))])
	}
	return some
}
