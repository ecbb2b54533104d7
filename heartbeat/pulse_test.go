package heartbeat

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

func TestRegistersThenBeatsAtTheToldPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{interval: 3 * time.Second}
		c := beating(t, co)
		time.Sleep(time.Minute)

		co.mu.Lock()
		defer co.mu.Unlock()
		if len(co.registered) != 1 {
			t.Fatalf("got %d registrations, want 1", len(co.registered))
		}
		r := co.registered[0]
		if r.Node != "host-a" || r.Incarnation != "inc-1" || r.PeerAddress != "10.0.0.9:7412" || r.Zone != "z1" || r.Pool != "spot" || r.Version != "v1" || r.Status.GetRoomBytes() != 7 {
			t.Errorf("got registration %v", r)
		}
		if len(co.beatTimes) < 18 || len(co.beatTimes) > 23 {
			t.Errorf("got %d beats in a minute, want one every 3 s", len(co.beatTimes))
		}
		for i := 1; i < len(co.beatTimes); i++ {
			if gap := co.beatTimes[i].Sub(co.beatTimes[i-1]); gap < 2700*time.Millisecond || gap > 3300*time.Millisecond {
				t.Errorf("got %v between beats, want 3 s give or take a tenth", gap)
			}
		}
		if b := co.beats[0]; b.Node != "host-a" || b.Incarnation != "inc-1" || b.Status.GetRoomBytes() != 7 {
			t.Errorf("got beat %v", b)
		}
		if addr, last, trouble := c.Health(); addr != addrA || time.Since(last) > 4*time.Second || trouble != "" {
			t.Errorf("got health %q %v ago %q, want %q, within 4 s, no trouble", addr, time.Since(last), trouble, addrA)
		}
	})
}

// The node's zone and pool are told once they are known, and only once.
func TestTellsWhereItStandsOnceThatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, co := newNetwork(), &coordinator{interval: time.Second}
		n.serve(t, addrA, co)
		cfg := config(n, addrA)
		var at atomic.Value
		at.Store("")
		cfg.Place = func() (zone, pool string) { return at.Load().(string), "spot" }
		start(t, newClient(t, cfg))
		time.Sleep(time.Minute)
		at.Store("z1")
		time.Sleep(time.Minute)

		co.mu.Lock()
		defer co.mu.Unlock()
		var zones []string
		for _, r := range co.registered {
			zones = append(zones, r.Zone)
		}
		if !slices.Equal(zones, []string{"", "z1"}) {
			t.Errorf("got registrations in zones %q, want none and then z1", zones)
		}
		if len(co.beats) < 100 {
			t.Errorf("got %d beats in two minutes, want one each second", len(co.beats))
		}
	})
}

func TestPaceFromTheWireIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{interval: 1}
		beating(t, co)
		time.Sleep(time.Second)
		if got := co.beatCount(); got > 15 {
			t.Errorf("got %d beats in a second, want at most one each %v", got, leastInterval)
		}
		co.set(func() { co.interval = 1000 * time.Hour })
		time.Sleep(time.Second)
		before := co.beatCount()
		time.Sleep(10 * time.Minute)
		if got := co.beatCount() - before; got < 9 {
			t.Errorf("got %d beats in ten minutes, want at least one each %v", got, mostInterval)
		}
	})
}

func TestNudgeBeatsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{interval: time.Minute}
		c := beating(t, co)
		time.Sleep(time.Second)
		before := co.beatCount()
		c.Nudge()
		synctest.Wait()
		if got := co.beatCount() - before; got != 1 {
			t.Errorf("got %d beats after a nudge, want 1", got)
		}
		for range 1000 {
			c.Nudge()
			time.Sleep(time.Millisecond)
		}
		if got := co.beatCount() - before; got > 13 {
			t.Errorf("got %d beats in a second of nudges, want at most one each %v", got, nudgeGap)
		}
	})
}

func TestCoordinatorAwayAtStartThenComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, co, book := newNetwork(), &coordinator{}, &logbook{}
		cfg := config(n, addrA)
		cfg.Log = book.log()
		c := newClient(t, cfg)
		start(t, c)
		time.Sleep(time.Minute)
		if _, last, trouble := c.Health(); !last.IsZero() || trouble == "" {
			t.Errorf("got last answer %v, trouble %q without a coordinator, want never and some", last, trouble)
		}
		dials := n.dials()
		if len(dials) > 40 {
			t.Errorf("got %d attempts in a minute, want a back-off", len(dials))
		}
		for i := 1; i < len(dials); i++ {
			if gap := dials[i].Sub(dials[i-1]); gap > backoffMost {
				t.Errorf("got %v between attempts, want at most %v", gap, backoffMost)
			}
		}
		n.serve(t, addrA, co)
		time.Sleep(backoffMost + time.Millisecond)
		if got := co.beatCount(); got == 0 {
			t.Fatalf("got no beat %v after the coordinator came", backoffMost)
		}
		if got := book.count("no heartbeat gets through"); got != 1 {
			t.Errorf("got %d lines for the start of the streak, want 1", got)
		}
		if got := book.count("heartbeats get through again"); got != 1 {
			t.Errorf("got %d lines for its end, want 1", got)
		}
		if _, _, trouble := c.Health(); trouble != "" {
			t.Errorf("got trouble %q, want none", trouble)
		}
	})
}

// While a coordinator is restarted, or another one is elected, agents have nothing to say. Each of thousands would say it.
func TestCoordinatorThatIsAwayForAMomentIsNotLogged(t *testing.T) {
	for away, want := range map[time.Duration]int{2 * time.Second: 0, 10 * time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			n, book := newNetwork(), &logbook{}
			cfg := config(n, addrA)
			cfg.Log = book.log()
			stop := n.serve(t, addrA, &coordinator{known: true, interval: time.Second})
			start(t, newClient(t, cfg))
			time.Sleep(time.Minute)
			stop()
			time.Sleep(away)
			n.serve(t, addrA, &coordinator{known: true, interval: time.Second})
			time.Sleep(time.Minute)
			if starts, ends := book.count("no heartbeat gets through"), book.count("heartbeats get through again"); starts != want || ends != want {
				t.Errorf("away for %s: got %d lines for the start and %d for the end, want %d of each", away, starts, ends, want)
			}
		})
	}
}

func TestRefusalIsLoggedThoughTheStreakBeganOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, book := newNetwork(), &logbook{}
		co := &coordinator{known: true, onBeat: func(context.Context) error { return status.Error(codes.PermissionDenied, "not your name") }}
		cfg := config(n, addrA)
		cfg.Log = book.log()
		start(t, newClient(t, cfg))
		time.Sleep(30 * time.Second)
		n.serve(t, addrA, co)
		time.Sleep(30 * time.Second)
		if got := book.count("not your name"); got != 1 {
			t.Errorf("got %d lines that name the refusal, want 1", got)
		}
	})
}

func TestRestartedCoordinatorThatForgot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, first, second := newNetwork(), &coordinator{}, &coordinator{}
		cfg := config(n, addrA)
		cfg.Held = heldBlocks("a/b/1", "a/b/2")
		c := newClient(t, cfg)
		stop := n.serve(t, addrA, first)
		start(t, c)
		time.Sleep(5 * time.Second)
		c.Landed(&api.HeldBlock{Id: "a/b/3", Bytes: 1})
		stop()
		n.serve(t, addrA, second)
		time.Sleep(10 * time.Second)
		if got := read(second, func() int { return len(second.registered) }); got != 1 {
			t.Errorf("got %d registrations at the new coordinator, want 1", got)
		}
		if got, want := second.heldIDs(), []string{"a/b/1", "a/b/2"}; !slices.Equal(got, want) {
			t.Errorf("got %v after the re-registration, want what Held yields, %v", got, want)
		}
	})
}

func TestRestartedCoordinatorThatRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, first, second := newNetwork(), &coordinator{version: 5}, &coordinator{known: true, version: 5}
		second.peers = []*api.Peer{{Node: "host-b", Address: "10.0.0.2:7412"}}
		c := newClient(t, config(n, addrA))
		stop := n.serve(t, addrA, first)
		start(t, c)
		time.Sleep(5 * time.Second)
		stop()
		time.Sleep(5 * time.Second)
		n.serve(t, addrA, second)
		time.Sleep(10 * time.Second)
		if got := read(second, func() int { return len(second.registered) }); got != 0 {
			t.Errorf("got %d registrations, want none: the coordinator knows the node", got)
		}
		if got := c.Peers(); len(got) != 1 {
			t.Errorf("got peers %v, want the new list though its number is the old one's", got)
		}
	})
}

func TestCoordinatorThatAlwaysForgetsIsNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, co := newNetwork(), &coordinator{}
		co.onBeat = func(context.Context) error { co.set(func() { co.known = false }); return nil }
		n.serve(t, addrA, forgetful{co})
		start(t, newClient(t, config(n, addrA)))
		time.Sleep(time.Minute)
		if got := co.beatCount(); got < 5 || got > 60 {
			t.Errorf("got %d beats in a minute, want the back-off's pace", got)
		}
	})
}

type forgetful struct{ *coordinator }

func (f forgetful) Register(context.Context, *api.RegisterRequest) (*api.RegisterReply, error) {
	return &api.RegisterReply{}, nil
}

func TestAddressesAreTriedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, b, last := newNetwork(), &coordinator{}, &coordinator{}
		c := newClient(t, config(n, addrA, addrB, addrC))
		stop := n.serve(t, addrB, b)
		start(t, c)
		time.Sleep(time.Second)
		if got := b.beatCount(); got == 0 {
			t.Fatal("got no beat at the second address within a second")
		}
		n.serve(t, addrC, last)
		stop()
		time.Sleep(2 * time.Second)
		if got := last.beatCount(); got == 0 {
			t.Error("got no beat at the third address within two seconds of the second's end")
		}
		if addr, _, _ := c.Health(); addr != addrC {
			t.Errorf("got address %s in use, want %s", addr, addrC)
		}
	})
}

// Three ways of hanging: the packets are dropped, the connection is taken but never read, the call is never answered.
func TestHangingCoordinatorCostsFiveSecondsAnAttempt(t *testing.T) {
	dropped := func(t *testing.T, n *network, addr string) { n.listen(t, addr) }
	mute := func(t *testing.T, n *network, addr string) {
		l := n.listen(t, addr)
		go func() {
			var taken []net.Conn
			for {
				conn, err := l.Accept()
				if err != nil {
					for _, c := range taken {
						c.Close()
					}
					return
				}
				taken = append(taken, conn)
			}
		}()
		t.Cleanup(func() { l.Close() })
	}
	silent := func(t *testing.T, n *network, addr string) {
		n.serve(t, addr, &coordinator{known: true, onBeat: hang})
	}
	for name, hanging := range map[string]func(*testing.T, *network, string){"dropped": dropped, "mute": mute, "silent": silent} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, co := newNetwork(), &coordinator{}
				hanging(t, n, addrA)
				c := newClient(t, config(n, addrA, addrB))
				start(t, c)
				time.Sleep(time.Minute)
				dials := n.dials()
				for i := 1; i < len(dials); i++ {
					if gap := dials[i].Sub(dials[i-1]); gap > answerLimit+turnPause {
						t.Errorf("got %v between attempts, want at most %v", gap, answerLimit+turnPause)
					}
				}
				n.serve(t, addrB, co)
				time.Sleep(answerLimit + backoffMost)
				if co.beatCount() == 0 {
					t.Error("got no beat at the well coordinator: the hanging one holds it up")
				}
			})
		})
	}
}

func TestOneHangingCoordinatorAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{known: true, onBeat: hang}
		beating(t, co)
		time.Sleep(2 * time.Minute)
		co.mu.Lock()
		defer co.mu.Unlock()
		for i := 1; i < len(co.beatTimes); i++ {
			if gap := co.beatTimes[i].Sub(co.beatTimes[i-1]); gap > answerLimit+time.Millisecond {
				t.Errorf("got %v between beats, want at most %v: the time it hung is the pause", gap, answerLimit)
			}
		}
	})
}

func TestEndingLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the bubble fails when a goroutine is left
		n, co := newNetwork(), &coordinator{}
		newClient(t, config(n, addrA)) // a client that is never run
		n.serve(t, addrA, co)
		for _, after := range []time.Duration{0, time.Millisecond, 10 * time.Second} {
			c := newClient(t, config(n, addrA, addrB))
			stop := start(t, c)
			time.Sleep(after)
			stop()
		}
		co.set(func() { co.onBeat = hang })
		c := newClient(t, config(n, addrA))
		stop := start(t, c)
		time.Sleep(time.Second)
		began := time.Now()
		stop()
		if took := time.Since(began); took > 0 {
			t.Errorf("got %v from the context's end to Run's, want none", took)
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{0x12, 0x0a, 0x0a, 0x08, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}) // an interval of ages
	f.Add([]byte{0x1a, 0x05, 0x0a, 0x01, 'd', 0x12, 0x00, 0x20, 0x01, 0x2a, 0x00})
	f.Fuzz(func(t *testing.T, wire []byte) {
		reply, err := unmarshalReply(wire)
		if err != nil {
			return
		}
		c := newClient(t, config(newNetwork(), addrA))
		p := newPulse(c)
		p.take(reply)
		if p.interval < leastInterval || p.interval > mostInterval {
			t.Errorf("got interval %v, want %v to %v", p.interval, leastInterval, mostInterval)
		}
		for _, peer := range c.Peers() {
			if peer.Node == "" || peer.Node == "host-a" || peer.Address == "" {
				t.Errorf("got peer %v", peer)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.NextDirective(ctx)
	})
}
