package heartbeat

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/lifeboat/lifeboat/api"
)

// comeBack lets agents lose their coordinator for a moment, and returns after how long each was back.
func comeBack(t *testing.T, agents int, window time.Duration, status func() *api.Status) (after []time.Duration) {
	var mu sync.Mutex
	var restarted time.Time
	for i := range agents {
		n, co := newNetwork(), &coordinator{interval: 100 * time.Millisecond, reconnect: window}
		cfg := config(n, addrA)
		cfg.Node, cfg.Status = fmt.Sprint("host-", i), status
		stop := n.serve(t, addrA, co)
		start(t, newClient(t, cfg))
		go func() {
			time.Sleep(5 * time.Second)
			stop()
			again := &coordinator{known: true, interval: 100 * time.Millisecond}
			n.serve(t, addrA, again)
			mu.Lock()
			restarted = time.Now()
			mu.Unlock()
			for again.beatCount() == 0 {
				time.Sleep(time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			after = append(after, time.Since(restarted))
		}()
	}
	time.Sleep(10*time.Second + 2*window)
	mu.Lock()
	defer mu.Unlock()
	if len(after) != agents {
		t.Fatalf("got %d agents back, want %d", len(after), agents)
	}
	return after
}

func TestAgentsComeBackOverTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var quarters [4]int
		for _, d := range comeBack(t, 60, 8*time.Second, nil) {
			if d > 8*time.Second+time.Second {
				t.Errorf("got an agent back after %s, want all within the window", d)
			}
			quarters[min(3, int(d/(2*time.Second)))]++
		}
		for i, got := range quarters {
			if got < 2 { // the mean is 15: with a proper spread this comes once in 400,000 runs
				t.Errorf("got %v back by quarters of the window: few in the %d.: want them spread", quarters, i+1)
			}
		}
	})
}

func TestSmallFleetComesBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range comeBack(t, 3, 2*time.Millisecond, nil) {
			if d > time.Second {
				t.Errorf("got an agent back after %s, want at once", d)
			}
		}
	})
}

func TestNodeUnderNoticeDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		noticed := func() *api.Status { return &api.Status{Notice: &api.Notice{Incident: "i", Stance: "drain"}} }
		for _, d := range comeBack(t, 10, 8*time.Second, noticed) {
			if d > time.Second {
				t.Errorf("got an agent under notice back after %s, want at once", d)
			}
		}
	})
}

// With a short lease the client gives up on an answer sooner: giving up, coming back and two beats fit into the lease.
func TestPatienceFollowsTheLease(t *testing.T) {
	p := newPulse(newClient(t, config(newNetwork(), addrA)))
	if got := p.limit(); got != answerLimit {
		t.Errorf("got %s without a lease, want %s", got, answerLimit)
	}
	for lease, want := range map[time.Duration]time.Duration{time.Minute: answerLimit, 30 * time.Second: answerLimit, 12 * time.Second: 2 * time.Second, time.Second: leastLimit} {
		if p.lease = lease; p.limit() != want {
			t.Errorf("lease %s: got %s, want %s", lease, p.limit(), want)
		}
	}
}

// Back sends once: at the start, and when the coordinator answers again.
func TestBackIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		stop := n.serve(t, addrA, &coordinator{interval: 100 * time.Millisecond})
		c := newClient(t, config(n, addrA))
		var silent time.Duration
		said := func() (times int) {
			for {
				select {
				case silent = <-c.Back():
					times++
				case <-time.After(10 * time.Second):
					return times
				}
			}
		}
		if got := said(); got != 0 {
			t.Errorf("said %d times before there was anything", got)
		}
		start(t, c)
		if got := said(); got != 1 {
			t.Errorf("said %d times at the start, want once", got)
		}
		stop()
		if got := said(); got != 0 {
			t.Errorf("said %d times while nobody answers", got)
		}
		n.serve(t, addrA, &coordinator{known: true, interval: 100 * time.Millisecond})
		if got := said(); got != 1 || silent < 10*time.Second || silent > 20*time.Second {
			t.Errorf("said %d times at the return, of %s, want once, of ten seconds and some", got, silent)
		}
	})
}

// If several silences end before anything receives from Back, it has the longest of them.
func TestBackHasTheLongestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{back: make(chan time.Duration, 1)}
		c.answered(0)
		<-c.Back()
		for _, silence := range []time.Duration{time.Second, time.Minute, 2 * time.Second} {
			c.beatFailed(errors.New("cut off"))
			time.Sleep(silence)
			c.answered(0)
		}
		if got := <-c.Back(); got != time.Minute {
			t.Errorf("no beat was answered for %s, want a minute", got)
		}
	})
}

// A machine that stands still misses what is said meanwhile like one that is cut off, though no beat of it fails.
func TestBackFromAStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{interval: 10 * time.Second}
		n := newNetwork()
		n.serve(t, addrA, co)
		cfg := config(n, addrA)
		cfg.Revoked = func([]*api.Revoked) { time.Sleep(time.Minute) } // the machine stands still
		c := newClient(t, cfg)
		start(t, c)
		if got := <-c.Back(); got < time.Hour {
			t.Errorf("got %s at the start", got)
		}
		back := func(within time.Duration) time.Duration {
			select {
			case silent := <-c.Back():
				return silent
			case <-time.After(within):
				return 0
			}
		}
		if got := back(5 * time.Minute); got != 0 {
			t.Errorf("no beat was answered for %s, in quiet times", got)
		}
		co.set(func() { co.revokedAt = 1 })
		if got := back(2 * time.Minute); got < time.Minute || got > 2*time.Minute {
			t.Errorf("it stood still for a minute: got %s", got)
		}
		if got := back(5 * time.Minute); got != 0 {
			t.Errorf("no beat was answered for %s, in quiet times again", got)
		}
	})
}

// While a machine sleeps, the clock by which durations are measured stands still, too.
func TestBackFromSleep(t *testing.T) {
	c := &Client{back: make(chan time.Duration, 1)}
	c.answered(0)
	<-c.Back()
	*(*uint64)(unsafe.Pointer(&c.lastAnswered)) -= 3600 << 30 // the wall clock's seconds begin at bit 30: time.Time
	c.answered(time.Minute)
	select {
	case got := <-c.Back():
		if got < time.Hour {
			t.Errorf("got %s, want an hour", got)
		}
	default:
		t.Error("it slept for an hour, and nothing was said")
	}
}
