package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/client"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func pretend(name string, answer roundTrip) *holder {
	return &holder{node: name, address: name, client: &http.Client{Transport: answer}}
}

// saying answers with a body, and announces a length.
func saying(body string, length int64) roundTrip {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body)), ContentLength: length}, nil
	}
}

func getInto(t *testing.T, into string, stdout io.Writer, from ...*holder) error {
	t.Helper()
	return getWith(t, getter{stderr: io.Discard}, into, stdout, from...)
}

func getWith(t *testing.T, g getter, into string, stdout io.Writer, from ...*holder) error {
	t.Helper()
	to, err := newTarget(into, stdout)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	return g.fromAny(t.Context(), "cache/-/a", from, nil, to)
}

func files(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestRanges(t *testing.T) {
	for s, want := range map[string]bool{
		"0-0": true, "2-8": true, "7-": true, "-5": true,
		"5-1": false, "-0": false, "-": false, "": false, "a-b": false, "1-2-3": false, "1": false, "+1-2": false, "--1": false,
	} {
		if got := isRange(s); got != want {
			t.Errorf("%q: got %v, want %v", s, got, want)
		}
	}
}

func TestGetOfTooFewBytesLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	err := getInto(t, filepath.Join(dir, "out"), nil, pretend("host-b", saying("short", 9)))
	if err == nil || !strings.Contains(err.Error(), "got 5 bytes, want 9") {
		t.Errorf("got %v", err)
	}
	if got := files(t, dir); got != "" {
		t.Errorf("left behind: %s", got)
	}
}

func TestGetIntoFileTriesTheNextHolder(t *testing.T) {
	dir := t.TempDir()
	err := getInto(t, filepath.Join(dir, "out"), nil, pretend("host-b", saying("short", 9)), pretend("host-c", saying("whole", 5)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil || string(got) != "whole" || files(t, dir) != "out" {
		t.Errorf("got %q, %v, and the files %s", got, err, files(t, dir))
	}
}

func TestGetToStreamDoesNotStartTwice(t *testing.T) {
	var out strings.Builder
	err := getInto(t, "-", &out, pretend("host-b", saying("short", 9)), pretend("host-c", saying("whole", 5)))
	if err == nil || out.String() != "short" {
		t.Errorf("got %q, %v, want what the first holder sent and an error", out.String(), err)
	}
}

// If this machine's disk is full no other holder is tried.
func TestGetStopsAtAFullDisk(t *testing.T) {
	const room = 1 << 20
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ) // writes over the limit then fail, as on a full disk (setrlimit(2))
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: room, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer signal.Reset(syscall.SIGXFSZ)
	defer syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was)

	dir := t.TempDir()
	for into, want := range map[string]string{
		filepath.Join(dir, "out"): "write " + filepath.Join(dir, "out") + ": file too large",
		"-":                       "write the standard output: no space left on device",
	} {
		asked := 0
		count := func(r *http.Request) (*http.Response, error) {
			asked++
			return saying(strings.Repeat("a", room+1), room+1)(r)
		}
		err := getInto(t, into, fullWriter{}, pretend("host-b", count), pretend("host-c", count))
		if err == nil || !strings.HasSuffix(err.Error(), want) || asked != 1 {
			t.Errorf("%d holders were asked, and got %v, want one and %q", asked, err, want)
		}
	}
	if got := files(t, dir); got != "" {
		t.Errorf("left behind: %s", got)
	}
}

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// part serves a block from its memory, and cuts the connection after so many bytes of an answer.
func part(etag, block string, cut int) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		w.Header().Set("ETag", etag)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(block))
		resp := w.Result()
		resp.ContentLength = int64(w.Body.Len())
		if w.Body.Len() > cut {
			resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(w.Body.String()[:cut]), iotest.ErrReader(io.ErrUnexpectedEOF)))
		}
		return resp, nil
	}
}

// A drained node goes while a block is read from it: another has the same bytes, and the read goes on there.
func TestGetGoesOnElsewhereInTheMiddle(t *testing.T) {
	const block = "0123456789"
	goes, stays := pretend("host-a", part(`"1"`, block, 4)), pretend("host-c", part(`"1"`, block, 100))
	moved := pretend("host-d", part(`"by its bytes"`, block, 100))
	other, longer := pretend("host-e", part(`"2"`, "012_456789", 100)), pretend("host-f", part(`"3"`, block+"more", 100))
	for _, c := range []struct {
		why, span, want string
		others          [][]*holder // as they are found, one time after the other
		fails           bool
	}{
		{why: "found at once", want: block, others: [][]*holder{{stays}}},
		{why: "a part of it", span: "2-8", want: block[2:9], others: [][]*holder{{stays}}},
		{why: "its end", span: "-6", want: block[4:], others: [][]*holder{{stays}}},
		{why: "heard of late", want: block, others: [][]*holder{{}, {}, {stays}}},
		{why: "by four holders that go", want: block, others: [][]*holder{{goes}, {goes}, {goes}}},
		{why: "moved", want: block, others: [][]*holder{{moved}}},
		{why: "a part of what moved", span: "1-7", want: block[1:8], others: [][]*holder{{other, moved}}},
		{why: "other versions", want: block[:4], others: [][]*holder{{other, longer}}, fails: true},
		{why: "a part of a longer one", span: "1-7", want: block[1:5], others: [][]*holder{{longer}}, fails: true},
		{why: "nobody", want: block[:4], fails: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			g := getter{span: c.span, stderr: io.Discard, others: func(context.Context, string) (have []*holder) {
				if len(c.others) > 0 {
					have, c.others = c.others[0], c.others[1:]
				}
				return have
			}}
			err := getWith(t, g, "-", &out, goes)
			if (err != nil) != c.fails || out.String() != c.want {
				t.Errorf("%s: got %q, %v, want %q", c.why, out.String(), err, c.want)
			}
		})
	}
}

// The known holders of a block do not answer: each other node that could have it is asked once.
func TestGetTurnsToOthersThanTheHolders(t *testing.T) {
	gone := pretend("host-a", func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED })
	for _, c := range []struct {
		others []*holder
		want   string
	}{
		{[]*holder{gone, pretend("host-c", saying("whole", 5))}, "whole"},
		{[]*holder{gone}, ""},
		{nil, ""},
	} {
		var out strings.Builder
		asked := 0
		g := getter{stderr: io.Discard, others: func(context.Context, string) []*holder { asked++; return c.others }}
		err := getWith(t, g, "-", &out, gone)
		if out.String() != c.want || (err == nil) != (c.want != "") || asked != 1 {
			t.Errorf("got %q, %v, asked %d times, want %q, once", out.String(), err, asked, c.want)
		}
		if err != nil && strings.Count(err.Error(), "refused") != 1 {
			t.Errorf("got %v, want one word about the holder", err)
		}
	}
}

// The holder of a map output goes once it has given a member: the next members are read from another.
func TestGetReadsTheNextMemberElsewhere(t *testing.T) {
	var asked atomic.Int64
	goes := pretend("host-a", func(r *http.Request) (*http.Response, error) {
		switch asked.Add(1) {
		case 1:
			return &http.Response{StatusCode: http.StatusMultipleChoices, Body: io.NopCloser(strings.NewReader(`{"members":[{"id":"cache/-/one","bytes":5},{"id":"cache/-/two","bytes":5}]}`))}, nil
		case 2:
			return saying("whole", 5)(r)
		}
		return nil, syscall.ECONNREFUSED
	})
	g := getter{stderr: io.Discard, others: func(context.Context, string) []*holder { return []*holder{pretend("host-b", saying("whole", 5))} }}
	into := t.TempDir()
	if err := getWith(t, g, into, io.Discard, goes); err != nil || files(t, into) != "one two" {
		t.Errorf("got %v and %s, want both members", err, files(t, into))
	}
}

func TestGetLeavesAHolderThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalls := pretend("host-b", func(r *http.Request) (*http.Response, error) {
			body, in := io.Pipe()
			context.AfterFunc(r.Context(), func() { in.CloseWithError(r.Context().Err()) })
			return &http.Response{StatusCode: http.StatusOK, Body: body, ContentLength: 5}, nil
		})
		var out strings.Builder
		start := time.Now()
		err := getInto(t, "-", &out, stalls, pretend("host-c", saying("whole", 5)))
		if err != nil || out.String() != "whole" || time.Since(start) != client.DefaultStall {
			t.Errorf("got %q, %v after %s, want %q after %s", out.String(), err, time.Since(start), "whole", client.DefaultStall)
		}
	})
}

func TestGetWaitsForABlockInFlightAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flying := pretend("host-b", func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"7200"}}, Body: http.NoBody}, nil
		})
		start := time.Now()
		err := getInto(t, "-", io.Discard, flying)
		if took := time.Since(start); err == nil || took > inFlight || took < inFlight-5*time.Second {
			t.Errorf("got %v after %s, want an error after about %s", err, took, inFlight)
		}
	})
}

func TestGetRefusesAnotherNode(t *testing.T) {
	f := newFleet(t, true)
	f.put(t, "host-c/cache/-/a", "block")
	f.put(t, "locate.json", `{"state": "held", "holders": [{"node": "host-b"}]}`)
	args := []string{"get", "cache/-/a", "--coordinator", f.coordinator, "--dev-insecure"}
	f.put(t, "host-b/cache/-/a", "block")
	if code, stdout, stderr := lifeboat(t, args...); code != exitDone || stdout != "block" {
		t.Fatalf("got code %d, %q, %s", code, stdout, stderr)
	}
	f.peers["host-b"] = f.peers["host-c"]
	code, stdout, stderr := lifeboat(t, args...)
	if code != exitFailed || stdout != "" || !strings.Contains(stderr, `"node host-c", want "node host-b"`) {
		t.Errorf("got code %d, %q, %s", code, stdout, stderr)
	}
}

// The coordinator of a large fleet names the candidates part by part.
func TestAllOfALargeFleetAreAsked(t *testing.T) {
	f := newFleet(t, true)
	f.put(t, "host-c/cache/-/a", "block")
	f.put(t, "host-b/cache/-/z", "another")
	f.put(t, "locate.json", `{"state": "unknown", "candidates": [{"node": "host-b"}], "next": "host-b"}`)
	f.put(t, "locatehost-b.json", `{"state": "unknown", "candidates": [{"node": "host-c"}]}`)
	for verb, want := range map[string]string{"get": "block", "locate": "host-c"} {
		if code, stdout, stderr := lifeboat(t, verb, "cache/-/a", "--coordinator", f.coordinator, "--dev-insecure"); code != exitDone || !strings.Contains(stdout, want) {
			t.Errorf("%s: got code %d, %q, %s", verb, code, stdout, stderr)
		}
	}
}

// silence is a node that does not answer.
func silence(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func answers(status int) roundTrip {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: http.NoBody}, nil
	}
}

func TestProbeStopsWhenEnoughIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		candidates := slices.Repeat([]*holder{pretend("host", silence)}, 128)
		candidates[20] = pretend("host", answers(http.StatusOK))
		start := time.Now()
		have, lost, _ := probe(t.Context(), "cache/-/a", candidates, 1)
		if len(have) != 1 || have[0] != candidates[20] || lost {
			t.Errorf("got %d holders, lost %t", len(have), lost)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// However many nodes are silent, the caller soon gets an answer: all that a coordinator names, and agents with a fallback, which ask all of
// them too.
func TestSilentNodesAreWaitedForTogether(t *testing.T) {
	mute := slices.Repeat([]*holder{pretend("host", silence)}, 129)
	slowDoor := func(status int) *holder {
		return pretend("door", func(*http.Request) (*http.Response, error) {
			<-time.After(9 * time.Second)
			return answers(status)(nil)
		})
	}
	for name, c := range map[string]struct {
		doors []*holder
		have  int
		most  time.Duration
	}{
		"nodes":                       {nil, 0, 10 * time.Second},
		"nodes, and it is beyond":     {[]*holder{slowDoor(404), slowDoor(200)}, 1, 11 * time.Second},
		"nodes, and it is not beyond": {[]*holder{slowDoor(404), slowDoor(404)}, 0, 11 * time.Second},
		"all":                         {[]*holder{pretend("door", silence), pretend("door", silence)}, 0, 17 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				have, lost, silent := seek(t.Context(), "cache/-/a", mute, c.doors, 1)
				if len(have) != c.have || lost || silent == nil && c.have == 0 {
					t.Errorf("got %d holders, lost %t, silent %v", len(have), lost, silent)
				}
				if took := time.Since(start); took > c.most {
					t.Errorf("took %s, want %s at most", took, c.most)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		door := pretend("door", func(*http.Request) (*http.Response, error) {
			t.Error("a door was asked for what a node has")
			return answers(200)(nil)
		})
		if have, _, _ := seek(t.Context(), "cache/-/a", []*holder{pretend("host", answers(200))}, []*holder{door}, 1); len(have) != 1 || have[0].node != "host" {
			t.Errorf("got %v", have)
		}
	})
}

// FuzzMemberName: whatever name a holder gives a block, its file is made in the directory asked for.
func FuzzMemberName(f *testing.F) {
	for _, id := range []string{"spark/app/shuffle_0_1_0.data", "..", "a/..", "/", "", ".", "a/b/", `a\..\b`, "a\x00b", strings.Repeat("x", 300), "a/\n"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "in")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		to, err := newTarget(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		err = to.write(id, strings.NewReader("x"), 1)
		if got := files(t, outer); got != "in" {
			t.Errorf("%q: outside of the directory: %s", id, got)
		}
		entries, err2 := os.ReadDir(dir)
		if err2 != nil {
			t.Fatal(err2)
		}
		if want := map[bool]int{true: 1, false: 0}[err == nil]; len(entries) != want {
			t.Errorf("%q: got %d files and %v", id, len(entries), err)
		}
	})
}
