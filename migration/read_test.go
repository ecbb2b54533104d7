package migration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Own and landed blocks of a few chunks, read whole and in parts.
func TestRanges(t *testing.T) {
	size := 3*wire.ChunkBytes + 100
	x := contentOf("x", size)
	a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
	write(t, filepath.Join(a.Dir, "cache/x"), x)
	write(t, filepath.Join(a.Dir, "cache/empty"), nil)
	a.drain(t, within(t, 20*time.Second), b)
	for _, n := range []*node{a, b} {
		_, _, whole := n.Get(t, "cache/-/x", "")
		etag := whole.Get("ETag")
		if etag == "" || strings.HasPrefix(etag, "W/") {
			t.Errorf("%s: ETag %q is not strong", n.Name, etag)
		}
		for _, c := range []struct {
			rng, ifRange string
			status       int
			from, to     int
		}{
			{"", "", 200, 0, size},
			{"bytes=0-0", "", 206, 0, 1},
			{"bytes=100-199", "", 206, 100, 200},
			{fmt.Sprintf("bytes=%d-%d", wire.ChunkBytes-1, wire.ChunkBytes), "", 206, wire.ChunkBytes - 1, wire.ChunkBytes + 1},
			{fmt.Sprintf("bytes=%d-%d", wire.ChunkBytes-10, 3*wire.ChunkBytes+10), "", 206, wire.ChunkBytes - 10, 3*wire.ChunkBytes + 11},
			{"bytes=-150", "", 206, size - 150, size},
			{fmt.Sprintf("bytes=%d-", 3*wire.ChunkBytes), "", 206, 3 * wire.ChunkBytes, size},
			{fmt.Sprintf("bytes=10-%d", 10*size), "", 206, 10, size},
			{"bytes=7-18446744073709551615", "", 206, 7, size},
			{"bytes=-18446744073709551616", "", 206, 0, size},
			{"bytes=99999999999999999999-", "", 416, 0, 0},
			{"bytes=5-9", etag, 206, 5, 10},
			{"bytes=5-9", `"another"`, 200, 0, size},
			{fmt.Sprintf("bytes=%d-", size), "", 416, 0, 0},
			{"bytes=-0", "", 416, 0, 0},
			{"bytes=-00,5-9", "", 206, 5, 10},
			{"Bytes=5-9", "", 206, 5, 10},
			{"lines=5-9", "", 200, 0, size},
			{"bytes=" + strings.Repeat("5-9,", 100) + "5-9", "", 200, 0, size},
		} {
			h := http.Header{}
			if c.rng != "" {
				h.Set("Range", c.rng)
			}
			if c.ifRange != "" {
				h.Set("If-Range", c.ifRange)
			}
			status, body, got := ask(t, n.Reader(), http.MethodGet, "/blocks/cache/-/x", h)
			if want := fmt.Sprintf("bytes */%d", size); status == 416 && got.Get("Content-Range") != want {
				t.Errorf("%s: %q: Content-Range %q, want %q", n.Name, c.rng, got.Get("Content-Range"), want)
			}
			if status != c.status || status != 416 && !bytes.Equal(body, x[c.from:c.to]) {
				t.Errorf("%s: %q if %q: status %d, %d bytes, want %d, %d", n.Name, c.rng, c.ifRange, status, len(body), c.status, c.to-c.from)
			}
		}
		for _, rng := range []http.Header{nil, {"Range": {"bytes=5-9"}}, {"Range": {fmt.Sprintf("bytes=%d-", size)}}} { // ranges are of GET alone
			status, body, h := ask(t, n.Reader(), http.MethodHead, "/blocks/cache/-/x", rng)
			if status != 200 || len(body) != 0 || h.Get("Content-Length") != fmt.Sprint(size) || h.Get("ETag") != etag {
				t.Errorf("%s: HEAD, %v: %d %v", n.Name, rng, status, h)
			}
		}
		if status, _, _ := ask(t, n.Reader(), http.MethodGet, "/blocks/cache/-/x", http.Header{"If-None-Match": {etag}}); status != 304 {
			t.Errorf("%s: unchanged: status %d, want 304", n.Name, status)
		}
		for _, rng := range []string{"bytes=0-", "bytes=5-9", "bytes=-5", "bytes=-0"} {
			if status, body, h := n.Get(t, "cache/-/empty", rng); status != 200 || len(body) != 0 || h.Get("Content-Range") != "" {
				t.Errorf("%s: %q of nothing: %d %v", n.Name, rng, status, h)
			}
		}
	}
}

func TestMapOutputIsAnsweredWithItsMembers(t *testing.T) {
	a := newNode(t, "a", with(sparkStore, "d0"))
	files := writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/blockmgr-x")}, 1, 2, 1000, 2000)
	inPlace, inVault := newNode(t, "b", with(sparkStore, "d0", "d1")), newNode(t, "c")
	a.drain(t, within(t, 20*time.Second), inPlace)
	inPlace.drain(t, within(t, 20*time.Second), inVault)
	for _, n := range []*node{a, inPlace, inVault} {
		status, body, _ := n.Get(t, "spark/blockmgr-x/shuffle_1_2_0", "")
		var got struct{ Members []inventory.NamedMember }
		if err := json.Unmarshal(body, &got); err != nil || status != 300 || len(got.Members) != 3 {
			t.Fatalf("%s: status %d, %s", n.Name, status, body)
		}
		for _, m := range got.Members {
			want := files[inventory.BlockID(m.ID).Name()]
			if status, body, _ := n.Get(t, m.ID, ""); status != 200 || !bytes.Equal(body, want) || m.Bytes != int64(len(want)) {
				t.Errorf("%s: %s: status %d, %d bytes of %d", n.Name, m.ID, status, len(body), m.Bytes)
			}
			if !n.Has(inventory.BlockID(m.ID)) {
				t.Errorf("%s says that it has no %s", n.Name, m.ID)
			}
		}
		if status, _, _ := n.Get(t, "spark/blockmgr-x/shuffle_1_2_0.checksum.CRC32", ""); status != 404 {
			t.Errorf("%s: a member that is not there: status %d", n.Name, status)
		}
	}
}

func TestReadingThroughOtherNodes(t *testing.T) {
	x := contentOf("x", wire.ChunkBytes+10)
	a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
	write(t, filepath.Join(a.Dir, "cache/x y%?#"), x)
	a.drain(t, within(t, 20*time.Second), b)
	const id = "cache/-/x y%?#"
	const target = "/blocks/cache/-/x%20y%25%3F%23"
	later := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	answer := func(status int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "told so", status) })
	}
	for name, c := range map[string]struct {
		target   string
		location reading.Location
		err      error
		header   http.Header
		status   int
		check    func(t *testing.T, body []byte, h http.Header)
	}{
		"held": {location: reading.Location{Holders: holders("b")}, status: 200,
			check: func(t *testing.T, body []byte, h http.Header) {
				if !bytes.Equal(body, x) || h.Get("Lifeboat-Node") != "b" || h.Get("ETag") == "" {
					t.Errorf("%d bytes from %q, ETag %q", len(body), h.Get("Lifeboat-Node"), h.Get("ETag"))
				}
			}},
		"a range of it": {location: reading.Location{Holders: holders("b")}, header: http.Header{"Range": {"bytes=-3"}}, status: 206,
			check: func(t *testing.T, body []byte, _ http.Header) {
				if !bytes.Equal(body, x[len(x)-3:]) {
					t.Errorf("got %d bytes", len(body))
				}
			}},
		"not what the reader has":     {location: reading.Location{Holders: holders("b")}, header: http.Header{"If-Match": {`"other"`}}, status: 412},
		"older than the reader's":     {location: reading.Location{Holders: holders("b")}, header: http.Header{"If-Modified-Since": {later}}, status: 304},
		"newer than the reader's":     {location: reading.Location{Holders: holders("b")}, header: http.Header{"If-Unmodified-Since": {"Thu, 01 Jan 1970 00:00:01 GMT"}}, status: 412},
		"first holder is gone":        {location: reading.Location{Holders: holders("gone", "b")}, status: 200},
		"first holder has it corrupt": {location: reading.Location{Holders: holders("corrupt", "b")}, status: 200},
		"all holders are gone":        {location: reading.Location{Holders: holders("gone")}, status: 503},
		"redirected": {target: target + "?redirect=true", location: reading.Location{Holders: holders("b")}, status: 307,
			check: func(t *testing.T, _ []byte, h http.Header) {
				if h.Get("Location") != "https://b:7412"+target {
					t.Errorf("to %s", h.Get("Location"))
				}
			}},
		"lost":             {location: reading.Location{Lost: true}, status: 410},
		"lost, redirected": {target: target + "?redirect=true", location: reading.Location{Lost: true}, status: 410},
		"was known, none has it": {location: reading.Location{Candidates: holders("empty"), Why: "b removed it"}, status: 410,
			check: func(t *testing.T, body []byte, h http.Header) {
				if h.Get("Lifeboat-Why") != "b removed it" || !strings.Contains(string(body), "recompute it (b removed it)") {
					t.Errorf("got why %q and %q", h.Get("Lifeboat-Why"), body)
				}
			}},
		"was known, its source has it": {location: reading.Location{Candidates: holders("b", "empty"), Why: "c removed it"}, status: 200},
		"was known, one is silent":     {location: reading.Location{Candidates: holders("empty", "gone"), Why: "b removed it"}, status: 503},
		"coordinator away":             {err: errors.New("no leader"), status: 503},
		"unknown, nobody to ask":       {location: reading.Location{}, status: 404},
		"unknown, one has it":          {location: reading.Location{Candidates: holders("empty", "gone", "b")}, status: 200},
		"unknown, none has it":         {location: reading.Location{Candidates: holders("empty", "empty2")}, status: 404},
		"unknown, one is silent":       {location: reading.Location{Candidates: holders("empty", "gone")}, status: 503},
		"unknown, one is unsure":       {location: reading.Location{Candidates: holders("empty", "corrupt")}, status: 503},
		"asked by another's hand":      {location: reading.Location{Holders: holders("b")}, header: http.Header{"Lifeboat-Hop": {"1"}}, status: 404},
	} {
		t.Run(name, func(t *testing.T) {
			empty := newNode(t, "empty")
			f := &fleet{nodes: map[string]http.Handler{"b": b.Reader(), "empty": empty.Reader(), "empty2": answer(404), "corrupt": answer(500)}}
			fetch := &reading.Fetcher{Dial: f.dial, Locate: func(_ context.Context, asked inventory.BlockID, _ bool) (reading.Location, error) {
				if asked != id {
					t.Errorf("asked for %s", asked)
				}
				return c.location, c.err
			}}
			defer fetch.Close()
			rd := &reading.Reader{Vault: empty.Vault, Fetch: fetch, Log: slog.New(slog.DiscardHandler)}
			to := target
			if c.target != "" {
				to = c.target
			}
			status, body, h := ask(t, rd, http.MethodGet, to, c.header)
			if status != c.status {
				t.Errorf("status %d: %.200s, want %d", status, body, c.status)
			}
			if status == 503 && h.Get("Retry-After") == "" {
				t.Error("503 without Retry-After")
			}
			if status == 200 && !bytes.Equal(body, x) {
				t.Errorf("%d bytes, want %d", len(body), len(x))
			}
			if c.check != nil {
				c.check(t, body, h)
			}
		})
	}
}

// A reader began to read a block where it was born, and goes on where it landed: by its ETag it is the same block. After a change it is
// not.
func TestReadingGoesOnWhereTheBlockLanded(t *testing.T) {
	x := contentOf("x", wire.ChunkBytes+10)
	a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
	file := filepath.Join(a.Dir, "cache/x")
	write(t, file, x)
	const id = "cache/-/x"
	_, _, born := a.Get(t, id, "")
	a.drain(t, within(t, 20*time.Second), b)
	_, _, landed := b.Get(t, id, "")
	for name, tag := range map[string]string{"born": born.Get("ETag"), "landed": landed.Get("ETag")} {
		status, body, h := ask(t, b.Reader(), http.MethodGet, "/blocks/"+id, http.Header{"If-Match": {tag}, "Range": {"bytes=100-"}})
		if status != 206 || !bytes.Equal(body, x[100:]) || h.Get("ETag") != tag {
			t.Errorf("what was %s is %s: got %d, %d bytes, ETag %s", name, tag, status, len(body), h.Get("ETag"))
		}
	}
	// Lists of versions, in one line or in several, through another node too.
	f := &fleet{nodes: map[string]http.Handler{"b": b.Reader()}}
	fetch := &reading.Fetcher{Dial: f.dial, Locate: func(context.Context, inventory.BlockID, bool) (reading.Location, error) {
		return reading.Location{Holders: holders("b")}, nil
	}}
	defer fetch.Close()
	through := &reading.Reader{Vault: newNode(t, "c").Vault, Fetch: fetch, Log: slog.New(slog.DiscardHandler)}
	for name, tag := range map[string]string{"born": born.Get("ETag"), "landed": landed.Get("ETag")} {
		for _, lines := range [][]string{{`"other", ` + tag}, {`"other"`, tag}} {
			for at, rd := range map[string]http.Handler{"the holder": b.Reader(), "another": through} {
				if status, _, h := ask(t, rd, http.MethodGet, "/blocks/"+id, http.Header{"If-Match": lines}); status != 200 || h.Get("ETag") != tag {
					t.Errorf("%s: at %s: If-Match %q: got %d, ETag %s, want 200", name, at, lines, status, h.Get("ETag"))
				}
				if status, _, _ := ask(t, rd, http.MethodGet, "/blocks/"+id, http.Header{"If-None-Match": lines}); status != 304 {
					t.Errorf("%s: at %s: If-None-Match %q: got %d, want 304", name, at, lines, status)
				}
			}
		}
	}
	write(t, file, contentOf("y", len(x)))
	_, _, born = a.Get(t, id, "")
	for name, tag := range map[string]string{"changed": born.Get("ETag"), "made up": strings.TrimSuffix(landed.Get("ETag"), `"`) + `x"`} {
		if status, _, _ := ask(t, b.Reader(), http.MethodGet, "/blocks/"+id, http.Header{"If-Match": {tag}}); status != 412 {
			t.Errorf("%s, %s: got %d, want 412", name, tag, status)
		}
	}
}

// Two nodes each believe that the other has a block. They answer, instead of asking each other for ever.
func TestReadersDoNotAskInCircles(t *testing.T) {
	f := &fleet{nodes: map[string]http.Handler{}}
	var fetchers []*reading.Fetcher
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		n := newNode(t, names[0])
		fetch := &reading.Fetcher{Dial: f.dial, Locate: func(context.Context, inventory.BlockID, bool) (reading.Location, error) {
			return reading.Location{Holders: holders(names[1])}, nil
		}}
		defer fetch.Close()
		fetchers = append(fetchers, fetch)
		f.nodes[names[0]] = &reading.Reader{Vault: n.Vault, Fetch: fetch, Log: slog.New(slog.DiscardHandler)}
	}
	if status, _, _ := get(t, f.nodes["a"], "cache/-/x", ""); status != 503 {
		t.Errorf("status %d, want 503", status)
	}
	if asked := f.whom(); len(asked) != 1 {
		t.Errorf("asked %v, want b once", asked)
	}
	_ = fetchers
}

// A body that breaks off at the holder is cut off for the reader too, and not completed.
func TestBrokenBodyIsCutOnTheWayThrough(t *testing.T) {
	x := contentOf("x", 3*wire.ChunkBytes)
	a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
	write(t, filepath.Join(a.Dir, "cache/x"), x)
	a.drain(t, within(t, 20*time.Second), b)
	flip(t, filepath.Join(b.Dir, "vault/segments"), x[2*wire.ChunkBytes:][:100], 1)
	f := &fleet{nodes: map[string]http.Handler{"b": b.Reader()}}
	fetch := &reading.Fetcher{Dial: f.dial, Locate: func(context.Context, inventory.BlockID, bool) (reading.Location, error) {
		return reading.Location{Holders: holders("b")}, nil
	}}
	defer fetch.Close()
	rd := &reading.Reader{Vault: newNode(t, "c").Vault, Fetch: fetch, Log: slog.New(slog.DiscardHandler)}
	if status, body, _ := get(t, rd, "cache/-/x", ""); status != -1 || !bytes.HasPrefix(x, body) {
		t.Errorf("status %d, %d bytes, want a cut body", status, len(body))
	}
}
