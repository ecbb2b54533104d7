package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/await"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// inBubble returns a Blocks that asks these agents without a network. The first bodies of each stand still after so many
// bytes.
func inBubble(stall time.Duration, stands map[*keeper][]int, agents ...*keeper) *Blocks {
	b := &Blocks{patience: time.Minute}
	for _, k := range agents {
		answer := func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			k.ServeHTTP(w, r)
			resp := w.Result()
			resp.ContentLength = int64(w.Body.Len())
			stand := w.Body.Len() + 1
			if at := stands[k]; len(at) > 0 {
				stand, stands[k] = at[0], at[1:]
			}
			body, in := io.Pipe()
			context.AfterFunc(r.Context(), func() { in.CloseWithError(r.Context().Err()) })
			go func() {
				if n, _ := io.Copy(in, io.LimitReader(w.Body, int64(stand))); int(n) < stand {
					in.Close()
				}
			}()
			resp.Body = body
			return resp, nil
		}
		b.agents = append(b.agents, &door{address: "agent", client: &http.Client{Transport: roundTrip(answer)}, stall: stall})
	}
	return b
}

// A holder may stand still amid a block and say nothing, as a frozen or cut off machine does. The reading goes on where the
// same bytes are. That holder may stand still, too, even amid the bytes that are compared.
func TestReadingLeavesAnAgentThatStandsStill(t *testing.T) {
	content := bytes.Repeat([]byte("abcdefgh"), 64<<10)
	for _, c := range []struct {
		name   string
		etag   string // at the second agent
		stands [2][]int
		want   time.Duration
	}{
		{"the same by its ETag", `"x-0"`, [2][]int{{200_000}, {}}, DefaultStall},
		{"both, in turns", `"x-0"`, [2][]int{{200_000, 1000}, {1000}}, 3 * DefaultStall},
		{"the same by its bytes", `"moved-0"`, [2][]int{{200_000}, {}}, DefaultStall},
		{"amid what is compared", `"moved-0"`, [2][]int{{200_000, 1000}, {0, 100_000}}, 3*DefaultStall + resumePause},
	} {
		synctest.Test(t, func(t *testing.T) {
			first, second := &keeper{content: content, etag: `"x-0"`}, &keeper{content: content, etag: c.etag}
			b := inBubble(DefaultStall, map[*keeper][]int{first: c.stands[0], second: c.stands[1]}, first, second)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			block, err := b.Open(ctx, spaced)
			if err != nil {
				t.Fatal(err)
			}
			defer block.Close()
			start := time.Now()
			got, err := io.ReadAll(block)
			if err != nil || !bytes.Equal(got, content) || time.Since(start) != c.want {
				t.Errorf("%s: got %d bytes, %v after %s, want %d after %s", c.name, len(got), err, time.Since(start), len(content), c.want)
			}
		})
	}
}

// When all agents stand still the reading ends, and says why.
func TestReadingEndsWhenAllStandStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{content: bytes.Repeat([]byte("abcdefgh"), 64<<10), etag: `"x-0"`}
		b := inBubble(time.Second, map[*keeper][]int{k: {1000, 0, 0, 0, 0, 0, 0}}, k)
		block, err := b.Open(t.Context(), spaced)
		if err != nil {
			t.Fatal(err)
		}
		defer block.Close()
		start := time.Now()
		got, err := io.ReadAll(block)
		if len(got) != 1000 || err == nil || !strings.Contains(err.Error(), "at byte 1000: no byte for 1s") || time.Since(start) != (maxResumes+1)*time.Second+(maxResumes-1)*resumePause {
			t.Errorf("got %d bytes, %v after %s", len(got), err, time.Since(start))
		}
	})
}

// A reading that is cancelled says so, and not what it waited for.
func TestReadingThatIsCancelledSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{content: bytes.Repeat([]byte("abcdefgh"), 64<<10), etag: `"x-0"`}
		b := inBubble(time.Second, map[*keeper][]int{k: {1000, 0, 0, 0, 0, 0, 0}}, k)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second+resumePause/2) // in the pause after the second try
		defer cancel()
		block, err := b.Open(ctx, spaced)
		if err != nil {
			t.Fatal(err)
		}
		defer block.Close()
		if _, err := io.ReadAll(block); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

// An agent that is restarted, as for an upgrade, refuses connections for a moment.
func TestReadingOutlivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content := bytes.Repeat([]byte("abcdefgh"), 64<<10)
		k := &keeper{content: content, etag: `"x-0"`}
		b := inBubble(time.Second, map[*keeper][]int{k: {1000}}, k)
		block, err := b.Open(t.Context(), spaced)
		if err != nil {
			t.Fatal(err)
		}
		defer block.Close()
		there, back := b.agents[0].client.Transport, time.Now().Add(3*time.Second)
		b.agents[0].client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			if time.Now().Before(back) {
				return nil, errors.New("connection refused")
			}
			return there.RoundTrip(r)
		})
		if got, err := io.ReadAll(block); err != nil || !bytes.Equal(got, content) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	})
}

// A reader may take as long as it likes between two Reads: only the agent's silence counts.
func TestSlowReaderIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{content: bytes.Repeat([]byte("abcdefgh"), 64<<10), etag: `"x-0"`}
		block, err := inBubble(time.Second, nil, k).Open(t.Context(), spaced)
		if err != nil {
			t.Fatal(err)
		}
		defer block.Close()
		piece := make([]byte, 100_000)
		for range 3 {
			time.Sleep(time.Minute)
			if _, err := io.ReadFull(block, piece); err != nil {
				t.Fatal(err)
			}
		}
		if len(k.asked) != 1 {
			t.Errorf("asked %q, want one answer to be enough", k.asked)
		}
	})
}

// An agent whose machine is gone is waited for once, and not before each block, also by a caller that gives up before the wait is over.
// After a while it may be back.
func TestAnAgentThatIsGoneIsAskedLast(t *testing.T) {
	const gone = 5 * time.Second
	for _, patience := range []time.Duration{time.Hour, gone / 2} {
		synctest.Test(t, func(t *testing.T) {
			there := &keeper{content: []byte("0123456789"), etag: `"x-0"`}
			b := inBubble(DefaultStall, nil, there, there)
			b.agents[0].client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
				if !await.Sleep(r.Context(), gone) {
					return nil, r.Context().Err()
				}
				return nil, errors.New("no route to host")
			})
			for i, waits := range []bool{true, false, false, true} {
				if i == 3 {
					time.Sleep(restFor)
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				start := time.Now()
				_, err := b.Stat(ctx, spaced)
				cancel()
				want := time.Duration(0)
				if waits {
					want = min(gone, patience)
				}
				if gaveUp := waits && patience < gone; time.Since(start) != want || errors.Is(err, context.DeadlineExceeded) != gaveUp || err != nil && !gaveUp {
					t.Errorf("patience %s, block %d: %v after %s, want it after %s", patience, i, err, time.Since(start), want)
				}
			}
		})
	}
}
