package client

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// keeper is an agent that serves one block.
type keeper struct {
	mu      sync.Mutex
	content []byte
	etag    string
	cutAt   int // the body of the first answers ends there
	cuts    int
	asked   []string // ranges
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, r.Method+" "+r.Header.Get("Range"))
	if r.URL.Path != "/blocks/cache/-/a b" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", k.etag)
	w.Header().Set("Lifeboat-Node", "host-c")
	if k.cuts > 0 {
		k.cuts--
		w = &cutter{w, k.cutAt}
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(k.content))
}

// cutter breaks the connection off once so many bytes have been written.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) < c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left])
	c.ResponseWriter.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// readers returns a Blocks that asks these agents in turn.
func readers(t *testing.T, agents ...http.Handler) *Blocks {
	t.Helper()
	var cfg BlocksConfig
	for _, a := range agents {
		s := httptest.NewTLSServer(a)
		t.Cleanup(s.Close)
		cfg.Agents = append(cfg.Agents, strings.TrimPrefix(s.URL, "https://"))
	}
	cfg.TLS, cfg.Patience = &tls.Config{InsecureSkipVerify: true}, time.Millisecond
	b, err := NewBlocks(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

const spaced = "cache/-/a b"

func TestBlockIsRead(t *testing.T) {
	k := &keeper{content: bytes.Repeat([]byte("0123456789"), 1000), etag: `"x-0"`}
	b := readers(t, k)
	info, err := b.Stat(t.Context(), spaced)
	if want := (Info{10000, `"x-0"`, "host-c"}); err != nil || info != want {
		t.Errorf("got %+v, %v, want %+v", info, err, want)
	}
	block, err := b.Open(t.Context(), spaced)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(block)
	if err != nil || !bytes.Equal(got, k.content) {
		t.Errorf("got %d bytes, %v, want the block's %d", len(got), err, len(k.content))
	}
	if _, err := block.Seek(-15, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	tail, err := io.ReadAll(block)
	if err != nil || string(tail) != "567890123456789" {
		t.Errorf("got %q, %v, want the last 15 bytes", tail, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if want := "[HEAD  GET  GET bytes=9985-]"; fmt.Sprint(k.asked) != want {
		t.Errorf("asked %v, want %s", k.asked, want)
	}
	block.Close()
	if _, err := block.Read(tail); err == nil {
		t.Error("a closed block is read")
	}
}

// A block's holder may be taken away during a reading. The reading goes on where the same bytes are.
func TestReadingGoesOnElsewhere(t *testing.T) {
	content := bytes.Repeat([]byte("abcdefgh"), 64<<10)
	first := &keeper{content: content, etag: `"x-0"`, cuts: 100, cutAt: 200_000}
	second := &keeper{content: content, etag: `"x-0"`}
	block, err := readers(t, first, second).Open(t.Context(), spaced)
	if err != nil {
		t.Fatal(err)
	}
	defer block.Close()
	got, err := io.ReadAll(block)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("got %d bytes, %v, want the block's %d", len(got), err, len(content))
	}
	second.mu.Lock()
	defer second.mu.Unlock()
	if len(second.asked) == 0 {
		t.Error("the second agent was asked for nothing, and the first breaks off each time")
	}
}

// A map output that moves during a reading is another version by its ETag, and the same one by its bytes.
func TestReadingGoesOnWithWhatMoved(t *testing.T) {
	content := bytes.Repeat([]byte("abcdefgh"), 64<<10)
	for cuts, skip := range map[int]int64{1: 0, 2: 77} { // a Seek makes one more request
		first := &keeper{content: content, etag: `"file-80000-1-1"`, cuts: cuts, cutAt: 200_000}
		moved := &keeper{content: content, etag: `"x-0"`, cuts: 2, cutAt: 100_000} // it breaks off, too, amid the bytes that are compared
		block, err := readers(t, first, moved).Open(t.Context(), spaced)
		if err != nil {
			t.Fatal(err)
		}
		defer block.Close()
		if _, err := block.Seek(skip, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		head := make([]byte, 1000)
		if _, err := io.ReadFull(block, head); err != nil {
			t.Fatal(err)
		}
		first.mu.Lock()
		first.etag = moved.etag // from now on it reads the block through
		first.mu.Unlock()
		rest, err := io.ReadAll(block)
		if got := append(head, rest...); err != nil || !bytes.Equal(got, content[skip:]) || block.ETag != `"x-0"` {
			t.Errorf("from byte %d: got %d bytes of ETag %s, %v, want %d of the moved one", skip, len(got), block.ETag, err, len(content[skip:]))
		}
	}
}

// After a Seek during a reading nobody can say that the earlier bytes are of the version that comes now.
func TestSeekEndsTheComparison(t *testing.T) {
	k := &keeper{content: bytes.Repeat([]byte("abcdefgh"), 64<<10), etag: `"old-0"`}
	block, err := readers(t, k).Open(t.Context(), spaced)
	if err != nil {
		t.Fatal(err)
	}
	defer block.Close()
	if _, err := io.ReadFull(block, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	k.etag = `"new-0"`
	k.mu.Unlock()
	if _, err := block.Seek(5000, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(block); !errors.Is(err, ErrChanged) {
		t.Errorf("got %v, want %v", err, ErrChanged)
	}
}

func TestOtherBytesAreNotJoined(t *testing.T) {
	for _, now := range [][]byte{bytes.Repeat([]byte("new"), 100_000), {}} { // an engine that writes a file anew empties it first
		k := &keeper{content: bytes.Repeat([]byte("old"), 100_000), etag: `"old-0"`, cuts: 1, cutAt: 100_000}
		block, err := readers(t, k).Open(t.Context(), spaced)
		if err != nil {
			t.Fatal(err)
		}
		defer block.Close()
		k.mu.Lock()
		k.content, k.etag = now, `"new-0"`
		k.mu.Unlock()
		if got, err := io.ReadAll(block); !errors.Is(err, ErrChanged) || bytes.Contains(got, []byte("new")) {
			t.Errorf("%d bytes now: got %d bytes, %v, want the old ones alone and %v", len(now), len(got), err, ErrChanged)
		}
	}
}

func TestWhatAgentsAnswer(t *testing.T) {
	answer := func(code int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); io.WriteString(w, body) })
	}
	k := &keeper{content: []byte("here"), etag: `"x-0"`}
	for _, c := range []struct {
		name   string
		agents []http.Handler
		want   error // nil: the block is read
		words  string
	}{
		{"never known", []http.Handler{answer(404, ""), k}, ErrUnknown, ""},
		{"lost", []http.Handler{answer(410, ""), k}, ErrLost, ""},
		{"lost, and why", []http.Handler{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Lifeboat-Why", "host-b removed it")
			w.WriteHeader(410)
		})}, ErrLost, "lost: recompute it (host-b removed it)"},
		{"in flight", []http.Handler{answer(503, "")}, ErrInFlight, "in flight"},
		{"on a node that is away", []http.Handler{answer(503, "locate x: no coordinator answers"), answer(500, "disk")}, ErrInFlight, "no coordinator answers"},
		{"in flight, and the next agent has it", []http.Handler{answer(503, ""), k}, nil, ""},
		{"one agent is ill", []http.Handler{answer(500, "disk"), k}, nil, ""},
		{"all are", []http.Handler{answer(500, "disk"), answer(403, "no right to read")}, nil, "no right to read"},
		{"nobody knows how long it is", []http.Handler{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			io.WriteString(w, "some")
		})}, nil, "how long it is"},
		{"the whole for a part", []http.Handler{answer(206, "")}, ErrChanged, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := readers(t, c.agents...)
			_, err := b.Open(t.Context(), spaced)
			if c.name == "the whole for a part" {
				_, err = io.ReadAll(&Block{Info: Info{Bytes: 9, ETag: `"x"`}, ctx: t.Context(), from: b, id: spaced})
			}
			switch {
			case c.want != nil && !errors.Is(err, c.want):
				t.Errorf("got %v, want %v", err, c.want)
			case c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)):
				t.Errorf("got %v, want it to tell %q", err, c.words)
			case c.want == nil && c.words == "" && err != nil:
				t.Errorf("got %v, want the block", err)
			}
		})
	}
	members := answer(300, `{"members": [{"id": "s/app/shuffle_0_1_0.data", "bytes": 7}, {"id": "s/app/shuffle_0_1_0.index", "bytes": 16}]}`)
	_, err := readers(t, members).Open(t.Context(), "s/app/shuffle_0_1_0")
	if several, ok := errors.AsType[*MembersError](err); !ok || len(several.Members) != 2 || several.Members[1].Bytes != 16 {
		t.Errorf("got %v, want the two members", err)
	}
	if _, err := readers(t, members).Stat(t.Context(), "s/app/shuffle_0_1_0"); err == nil || !strings.HasSuffix(err.Error(), "it is a map output: read its members") {
		t.Errorf("got %v, want no number of members, for nobody has said it", err)
	}
	if _, err := NewBlocks(BlocksConfig{Agents: []string{"host-a:7401"}}); err == nil {
		t.Error("an agent would be asked without TLS")
	}
	if _, err := NewBlocks(BlocksConfig{}); err == nil {
		t.Error("nobody would be asked")
	}
}

func FuzzMembers(f *testing.F) {
	f.Add(`{"members":[{"id":"spark/app/shuffle_0_1_0.data","bytes":3}]}`)
	f.Add(`{"members":[]}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, body string) {
		err := readMembers(strings.NewReader(body))
		if several, ok := errors.AsType[*MembersError](err); ok && len(several.Members) == 0 && strings.TrimSpace(body) != "" {
			t.Errorf("%q: a list of members without any", body)
		}
		if err == nil {
			t.Errorf("%q: no error and no members", body)
		}
	})
}

// An agent says 503 for several reasons; that a block is being carried is one of them.
func TestRefusedTellsTheAgentsWords(t *testing.T) {
	away := httptest.NewRecorder()
	away.WriteHeader(http.StatusServiceUnavailable)
	away.WriteString("locate x: no coordinator answers\n")
	if err := Refused(away.Result()); !errors.Is(err, ErrInFlight) || !strings.Contains(err.Error(), "no coordinator answers") {
		t.Errorf("got %v, want the agent's words", err)
	}
}

// countConns serves with TLS, and counts the connections that are made.
func countConns(t *testing.T, h http.Handler) (*Blocks, *atomic.Int64) {
	s := httptest.NewUnstartedServer(h)
	conns := &atomic.Int64{}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	b, err := NewBlocks(BlocksConfig{Agents: []string{strings.TrimPrefix(s.URL, "https://")}, TLS: &tls.Config{InsecureSkipVerify: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, conns
}

// An agent is asked again on the same connection, whatever it answered.
func TestAConnectionIsUsedAgain(t *testing.T) {
	b, conns := countConns(t, &keeper{content: []byte("0123456789"), etag: `"x-0"`})
	for range 5 {
		if _, err := b.Open(t.Context(), "cache/-/nothing"); !errors.Is(err, ErrUnknown) {
			t.Errorf("got %v", err)
		}
		block, err := b.Open(t.Context(), spaced)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(block); err != nil {
			t.Error(err)
		}
		block.Close()
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("made %d connections for 10 questions, want 1", n)
	}
}

// Goroutines that read at once have a connection each, and use it again: a handshake costs more than a small block.
func TestManyReadersKeepTheirConnections(t *testing.T) {
	const rounds, readers = 5, 8
	b, conns := countConns(t, &keeper{content: []byte("0123456789"), etag: `"x-0"`})
	for range rounds {
		var blocks []*Block
		for range readers {
			block, err := b.Open(t.Context(), spaced)
			if err != nil {
				t.Fatal(err)
			}
			defer block.Close()
			blocks = append(blocks, block)
		}
		for _, block := range blocks {
			if _, err := io.ReadAll(block); err != nil {
				t.Error(err)
			}
		}
	}
	if n := conns.Load(); n > readers {
		t.Errorf("made %d connections for %d readers at once, want one each", n, readers)
	}
}

// A text that cannot be a block's id is refused here. No agent is asked, for it would send a caller that asks for
// a/-/../x elsewhere.
func TestWhatIsNoIDIsNotAskedFor(t *testing.T) {
	b := readers(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL.Path) }))
	for _, id := range []string{"", "model-7.bin", "/cache/-/a", "cache/-/../../etc/passwd", "../-/a", "cache//a", "cache/-/a/"} {
		if _, err := b.Open(t.Context(), id); err == nil || !strings.Contains(err.Error(), "want STORE/SCOPE/NAME") {
			t.Errorf("%q: got %v", id, err)
		}
	}
}

// An answer without words, as after HEAD, gives an error without words.
func TestRefusedWithoutWords(t *testing.T) {
	mute := httptest.NewRecorder()
	mute.WriteHeader(http.StatusForbidden)
	if got, want := Refused(mute.Result()).Error(), "it answered 403 forbidden"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
