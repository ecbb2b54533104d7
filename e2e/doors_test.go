package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestDeadNodesBlocksAreReadEverywhere(t *testing.T) {
	f := newFleet(t, "lease: 3s") // the dead node's lease runs out soon; no live node is silent for so long
	token := "a token of more than sixteen characters"
	secret := f.write("token", token)
	a, b, c := f.agent("host-a"), f.agent("host-b"), f.agent("host-c")
	b.reconfigure("listen: {peer: " + b.peer + ", http: " + b.http + ", socket: " + b.socket + ", read_token_file: " + secret + "}")
	a.fill(6, 1<<20)
	a.shuffle(6, 1<<20)
	f.up()
	a.verb("decommission", "--self", "--wait").exits(0)
	f.until(a.is("DECOMMISSIONED"))
	held := a.located()
	a.kill()

	f.gets(a.blocks)
	f.until(func() error { // until the dead node's lease has run out, it may have any block
		if got := c.onSocket().get(t, "cache/-/host-a/never", ""); got.code != http.StatusNotFound {
			return fmt.Errorf("a block that never was: got status %d (%s), want 404", got.code, got.body)
		}
		return nil
	})
	doors := []door{b.onSocket(), c.onSocket(), b.onPeer(), c.onPeer(), b.onLoopback(token)}
	for _, d := range doors {
		d.serves(t, a.blocks)
		for _, x := range few(a.blocks, 3) {
			d.servesParts(t, x)
		}
		if got := d.get(t, "cache/-/host-a/never", ""); got.code != http.StatusNotFound {
			t.Errorf("%s: a block that never was: got status %d (%s), want 404", d.name, got.code, got.body)
		}
	}
	f.reads(a.blocks, a.peer, b.peer) // the first is dead
	f.reads(few(a.blocks, 3), "unix:"+c.socket)
	for _, d := range []door{b.onLoopback(""), b.onLoopback("another token, as long as it"), c.onLoopback(token)} {
		if got := d.get(t, a.blocks[0].id, ""); got.code != http.StatusUnauthorized {
			t.Errorf("%s without the token: got status %d, want 401", d.name, got.code)
		}
	}

	x := a.blocks[0]
	holder := held[x.whole].Holders[0]
	if l := decode[locationView](f.verb("locate", x.id, "-o", "json").exits(0)); l.State != "held" || l.Holders[0].Node != holder {
		t.Errorf("locate %s: got %+v, want it at %s", x.id, l, holder)
	}
	f.verb("locate", x.id).exits(0).tells("NODE", holder)
	f.verb("locate", "cache/-/host-a/never").exits(3)
	f.verb("get", "cache/-/host-a/never").exits(3)
	f.verb("locate", "nonsense").exits(2)
	for _, other := range []*node{b, c} { // a node without the block says where it is
		got := other.onSocket().get(t, x.id+"?redirect=true", "")
		if other.host == holder && got.code != http.StatusOK || other.host != holder && (got.code != http.StatusTemporaryRedirect || got.header.Get("Location") == "") {
			t.Errorf("%s, asked to redirect to %s: got status %d and %v", other.host, holder, got.code, got.header)
		}
	}

	whole := f.get(t, a, x, "--range", "10-19")
	if parts := f.get(t, a, x, "--range", "-5"); len(whole) != 10 || len(parts) != 5 {
		t.Errorf("get --range: got %d and %d bytes, want 10 and 5", len(whole), len(parts))
	}
	f.verb("get", x.id, "--range", strconv.FormatInt(x.bytes, 10)+"-").exits(2).tells("no such bytes")
	f.mapOutput(a)
}

// get returns what `lifeboat get` prints. It fails the test unless the file that is still on the dead node's disk has
// these bytes.
func (f *fleet) get(t *testing.T, n *node, b block, flags ...string) string {
	t.Helper()
	got := f.verb(append([]string{"get", b.id}, flags...)...).exits(0).stdout
	file, err := os.ReadFile(b.path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(file, []byte(got)) {
		t.Errorf("get %s %v: the bytes are not those of %s", b.id, flags, n.host)
	}
	return got
}

// mapOutput reads a block of several files. Under the block's own id `get` lists the files; into a directory it writes
// all of them.
func (f *fleet) mapOutput(n *node) {
	f.t.Helper()
	var members []block
	for _, b := range n.blocks {
		if strings.HasSuffix(b.whole, "/shuffle_0_0_0") {
			members = append(members, b)
		}
	}
	if len(members) != 3 {
		f.t.Fatalf("got %d members of a map output, want 3", len(members))
	}
	id := members[0].whole
	f.verb("get", id).exits(2).tells(members[0].id, members[1].id, members[2].id)
	into := f.t.TempDir()
	f.verb("get", id, "-o", into).exits(0)
	for _, m := range members {
		got, err := os.ReadFile(filepath.Join(into, filepath.Base(m.id)))
		if err != nil || sum(got) != m.sha256 {
			f.t.Errorf("get %s: %s has %d bytes (%v), want %d of sum %s", id, m.id, len(got), err, m.bytes, m.sha256)
		}
	}
}

// servesParts fails the test unless ranges of a block have the same bytes as the whole block.
func (d door) servesParts(t *testing.T, b block) {
	t.Helper()
	all := d.get(t, b.id, "")
	tag := all.header.Get("ETag")
	if tag == "" || strings.HasPrefix(tag, "W/") {
		t.Errorf("%s: %s has ETag %q, want a strong one", d.name, b.id, tag)
	}
	n := len(all.body)
	for span, want := range map[string][]byte{"1-3": all.body[1:4], "-4": all.body[n-4:], strconv.Itoa(n-6) + "-": all.body[n-6:]} {
		if got := d.get(t, b.id, span); got.code != http.StatusPartialContent || !bytes.Equal(got.body, want) || got.header.Get("ETag") != tag {
			t.Errorf("%s: bytes %s of %s: got status %d, %q, ETag %s; want 206, %q, %s", d.name, span, b.id, got.code, got.body, got.header.Get("ETag"), want, tag)
		}
	}
	if got := d.get(t, b.id, strconv.Itoa(n)+"-"); got.code != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("%s: bytes behind the end of %s: got status %d, want 416", d.name, b.id, got.code)
	}
	head, err := d.ask(t, http.MethodHead, b.id, "")
	if err != nil || head.code != http.StatusOK || head.header.Get("Content-Length") != strconv.Itoa(n) || len(head.body) != 0 {
		t.Errorf("%s: HEAD %s: got status %d, %v, %v; want 200 and a length of %d", d.name, b.id, head.code, head.header, err, n)
	}
	if post, err := d.ask(t, http.MethodPost, b.id, ""); err != nil || post.code != http.StatusMethodNotAllowed {
		t.Errorf("%s: POST %s: got status %d, %v; want 405", d.name, b.id, post.code, err)
	}
}

// A dead node that was not drained may have had the block. So no other node may say that there is none, or that it is
// elsewhere.
func TestSilenceIsNoAnswer(t *testing.T) {
	f := newFleet(t)
	a, b := f.agent("host-a"), f.agent("host-b")
	a.fill(2, 10<<10)
	f.up()
	id := a.blocks[0].id
	f.verb("locate", id).exits(0).tells("host-a")
	b.onSocket().serves(t, a.blocks)
	a.kill()
	if got := b.onSocket().get(t, id, ""); got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("GET of a block whose node is silent: got status %d and %v, want 503 and when to ask again", got.code, got.header)
	}
	b.verb("locate", id).exits(1)
	f.verb("locate", id).exits(1).tells("host-a")
}
