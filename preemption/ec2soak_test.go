package preemption

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSoak runs 72 hours at the usual pace: 260,000 polls, in which 2,000 interruptions come and are taken back, and a tenth
// of the other polls get no answer. What the source keeps must not grow. The polls are answered in memory, without the SDK
// and HTTP, which alone would make this take minutes; TestDescriptorsStayFlat has those.
func TestSoak(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		rounds := 2000
		if testing.Short() {
			rounds = 100
		}
		const lasts = 130 * time.Second // of which half is spent under notice
		var mu sync.Mutex
		var action string
		var polls int
		for _, path := range c.source.paths {
			path.ask = func(context.Context) (answer, error) {
				mu.Lock()
				defer mu.Unlock()
				switch path.path {
				case pathScheduled:
					return answer{body: []byte("[]"), found: true}, nil
				case pathAction:
				default:
					return answer{}, nil
				}
				if polls++; polls%10 == 0 {
					return answer{}, errors.New("nothing is known")
				}
				return answer{body: []byte(action), found: action != ""}, nil
			}
		}
		show := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			action = what
		}
		c.listen(t)
		var early used
		for round := range rounds {
			if round == rounds/10 {
				early = usedNow()
			}
			show(`{"action":"terminate","time":"` + time.Now().Add(2*time.Minute).UTC().Format(time.RFC3339) + `"}`)
			c.within(t, lasts/2)
			show("")
			c.within(t, lasts/2)
		}
		late := usedNow()
		t.Logf("%d polls; heap %d bytes after a tenth, %d at the end; goroutines %d and %d", polls, early.heap, late.heap, early.goroutines, late.goroutines)
		if want := rounds * int(lasts/time.Second); polls < want {
			t.Errorf("%d polls, want %d, one a second", polls, want)
		}
		if late.heap > early.heap+64<<10 || late.goroutines > early.goroutines {
			t.Errorf("%+v became %+v, want no growth", early, late)
		}
	})
}

// used is how much a process holds.
type used struct {
	heap       uint64
	goroutines int
}

func usedNow() used {
	synctest.Wait()
	runtime.GC()
	runtime.GC() // a second run frees what the first one finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return used{m.HeapAlloc, runtime.NumGoroutine()}
}

// TestDescriptorsStayFlat breaks the way to the service over and over, in every way known, and counts what is left open.
func TestDescriptorsStayFlat(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		var open, most atomic.Int64
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := c.dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			most.Store(max(most.Load(), open.Add(1)))
			return &counted{Conn: conn, open: &open}, nil
		}
		c.open(t, EC2Config{Metadata: Metadata{Log: slog.New(slog.DiscardHandler), Dial: dial}})
		c.listen(t)
		for range 20 {
			for _, begin := range troubles {
				begin(c)
				c.silent(t, 5*time.Second)
				c.heal()
				c.silent(t, 5*time.Second)
			}
		}
		c.silent(t, slowLimit) // the service notices that nobody waits for its last answers
		if most.Load() > 9 || open.Load() > 4 {
			t.Errorf("%d connections were open at once, %d at the end, want one for each path that is kept, and one for what is late of each path and of the token", most.Load(), open.Load())
		}
	})
}

// counted is a connection that is counted while it is open.
type counted struct {
	net.Conn
	open   *atomic.Int64
	closed sync.Once
}

func (c *counted) Close() error {
	c.closed.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}
