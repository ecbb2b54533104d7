package migration

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// begins drains into a fallback, and returns how long it took until something was there.
func (tr *trip) begins(t *testing.T, s *larder) (after time.Duration, entries []manifest.Entry) {
	t.Helper()
	began, first := time.Now(), atomic.Int64{}
	s.trip = func(string) error {
		first.CompareAndSwap(0, int64(time.Since(began))+1)
		return nil
	}
	tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
	_, entries = tr.run(within(t, time.Minute))
	return time.Duration(first.Load()), entries
}

// Every peer has said itself that it takes nothing, by a grant of no room or by a refusal: there is nobody to wait for.
func TestFallbackBeginsWhenEveryPeerHasDeclined(t *testing.T) {
	for name, peers := range map[string]func() []*node{
		"nobody is known": func() []*node { return nil },
		"full, and leaving too": func() []*node {
			full, leaving := newNode(t, "full"), newNode(t, "leaving")
			full.Room, leaving.Refuse = roomFor(0), "it leaves too"
			return []*node{full, leaving}
		},
		"more than are asked at a time": func() (all []*node) {
			for name := range strings.SplitSeq("bcdefghijkl", "") {
				n := newNode(t, name)
				n.Room = roomFor(10)
				all = append(all, n)
			}
			return all
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, want := cached(t, 20, 1000)
				tr := newTrip(t, a, peers()...)
				after, entries := tr.begins(t, newLarder())
				wantInFallback(t, tr.cfg.Fallback, want, entries)
				if after > fullSettles+3*lookAtPeers {
					t.Errorf("the fallback was used after %v, want it at once", after)
				}
			})
		})
	}
}

// A peer that does not answer, or says that it is stopping, may be restarting. It gets time for that, even though other peers are
// full.
func TestPeerThatRestartsKeepsItsBlocks(t *testing.T) {
	refusing := func(no wire.Refuse) func(net.Conn) {
		return func(conn net.Conn) {
			defer conn.Close()
			wire.NewReader(conn, wire.ChunkBytes).Next()
			conn.Write(wire.AppendFrame(nil, wire.FrameRefuse, 0, no.Append(nil)))
		}
	}
	for name, as := range map[string]func(net.Conn){
		"does not answer": func(conn net.Conn) { conn.Close() },
		"is stopping":     refusing(wire.Refuse{Reason: "the agent is stopping", RetryMillis: 100}),
		"is busy":         refusing(wire.Refuse{Reason: "busy", RetryMillis: 100}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, want := cached(t, 20, 1000)
				b, full := newNode(t, "b"), newNode(t, "full")
				full.Room = roomFor(0)
				s := newLarder()
				tr := newTrip(t, a, b, full)
				tr.fakes = map[string]func(net.Conn){"b": as}
				time.AfterFunc(fallbackPatience/4, func() {
					tr.mu.Lock()
					defer tr.mu.Unlock()
					delete(tr.fakes, "b")
				})
				tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
				_, entries := tr.run(within(t, time.Minute))
				wantThere(t, want, entries, b)
				s.wantUnused(t)
			})
		})
	}
}

// A peer that has just started grants no room until its disks were tried.
func TestPeerThatHasRestartedKeepsItsBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 20, 1000)
		b := newNode(t, "b")
		tried := time.Now().Add(fullSettles / 2)
		b.Room = func(string) int64 {
			if time.Now().Before(tried) {
				return 0
			}
			return 1 << 40
		}
		s := newLarder()
		tr := newTrip(t, a, b)
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		_, entries := tr.run(within(t, time.Minute))
		wantThere(t, want, entries, b)
		s.wantUnused(t)
	})
}

// A peer that the coordinator named a moment ago, and does not name now, gets time too: a node that restarts is not named.
func TestPeerThatIsMissedKeepsItsBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 20, 1000)
		b := newNode(t, "b")
		s := newLarder()
		tr := newTrip(t, a, b)
		back := time.Now().Add(fallbackPatience / 2)
		known := tr.cfg.Peers
		tr.cfg.Peers = func() []Peer {
			if time.Now().Before(back) {
				return nil
			}
			return known()
		}
		tr.cfg.Missed = func() bool { return true }
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		_, entries := tr.run(within(t, time.Minute))
		wantThere(t, want, entries, b)
		s.wantUnused(t)
	})
}

// A peer that is no longer named before it was asked is not waited for as long as one that looks well.
func TestPeerThatIsGoneBeforeItWasAskedIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 20, 1000)
		tr := newTrip(t, a)
		all := []Peer{{Node: "b"}, {Node: "c"}, {Node: "d"}, {Node: "e"}, {Node: "f"}}
		tr.fakes = map[string]func(net.Conn){}
		for _, p := range all {
			tr.fakes[p.Node] = func(conn net.Conn) { // takes a while to say no
				defer conn.Close()
				wire.NewReader(conn, wire.ChunkBytes).Next()
				time.Sleep(time.Second)
				conn.Write(wire.AppendFrame(nil, wire.FrameRefuse, 0, wire.Refuse{Reason: "it leaves too", RetryMillis: 1000, Stays: true}.Append(nil)))
			}
		}
		began := time.Now()
		tr.cfg.Peers = func() []Peer {
			if time.Since(began) < lookForPeers/2 {
				return all // only leastWidth of them are asked at once
			}
			return nil
		}
		after, entries := tr.begins(t, newLarder())
		wantInFallback(t, tr.cfg.Fallback, want, entries)
		if after < time.Second || after > fallbackPatience+2*lookAtPeers {
			t.Errorf("the fallback was used after %v, want soon after %v", after, fallbackPatience)
		}
	})
}

// slowLarder takes its time for each answer.
type slowLarder struct {
	*larder
	takes time.Duration
}

func (s *slowLarder) Get(ctx context.Context, name string, from int64, into []byte) (int, error) {
	time.Sleep(s.takes)
	return s.larder.Get(ctx, name, from, into)
}

// A fallback that hangs is reported long before it is given up. One that is only slow is not given up at all.
func TestFallbackThatDoesNotAnswerIsToldEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 4, 1000)
		var said strings.Builder
		tr := newTrip(t, a)
		tr.cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
		tr.cfg.Fallback = newLarder().as(lastresort.LayoutBlocks)
		tr.cfg.Fallback.Objects = &slowLarder{newLarder(), 8 * time.Second}
		time.AfterFunc(answerSoon+time.Second, func() {
			p := tr.drain.Progress().Peers
			if len(p) != 1 || p[0].Node != "fallback:spill" || !strings.Contains(p[0].Trouble, "no answer for 2s") {
				t.Errorf("after %v: got %+v, want it in trouble", answerSoon+time.Second, p)
			}
			if n := strings.Count(said.String(), "the fallback does not answer"); n != 1 {
				t.Errorf("it was logged %d times, want once: %s", n, said.String())
			}
		})
		_, entries := tr.run(within(t, time.Minute))
		wantInFallback(t, tr.cfg.Fallback, want, entries)
		if p := tr.drain.Progress().Peers; len(p) != 1 || p[0].Trouble != "" {
			t.Errorf("when it had answered: got %+v, want it well", p)
		}
	})
}

// A fallback that falls silent during uploads is reported early too, once it is known how long uploads take.
func TestFallbackThatFallsSilentIsToldEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 12, largeUpload)
		tr := newTrip(t, a)
		s := newLarder()
		s.rate = largeUpload // a second each
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		tr.cfg.Fallback.Objects = &stallingLarder{s, time.Now().Add(1500 * time.Millisecond), time.Now().Add(15 * time.Second)}
		trouble := func(after time.Duration, words string) {
			time.AfterFunc(after, func() {
				if p := tr.drain.Progress().Peers; len(p) != 1 || !strings.HasPrefix(p[0].Trouble, words) || (words == "") != (p[0].Trouble == "") {
					t.Errorf("after %v: got %+v, want %q", after, p, words)
				}
			})
		}
		trouble(4500*time.Millisecond, "") // the second four would need till then at half the rate
		trouble(6500*time.Millisecond, "no answer for 4")
		_, entries := tr.run(within(t, time.Minute))
		wantInFallback(t, tr.cfg.Fallback, want, entries)
	})
}

// stallingLarder takes nothing between two instants.
type stallingLarder struct {
	*larder
	from, to time.Time
}

func (s *stallingLarder) Put(ctx context.Context, name string, bytes int64, content io.Reader, fresh bool) error {
	err := s.larder.Put(ctx, name, bytes, content, fresh)
	if time.Now().After(s.from) {
		time.Sleep(time.Until(s.to))
	}
	return err
}

func (s *larder) wantUnused(t *testing.T) {
	t.Helper()
	if n := len(s.putNames()); n != 0 {
		t.Errorf("%d contents went to the fallback", n)
	}
}
