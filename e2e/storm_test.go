package e2e_test

import (
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/dev/corpus"
)

var (
	stormRuns = flag.Int("storms", 1, "how many runs of TestStorm")
	stormSeed = flag.Uint64("storm.seed", 1, "the seed of the first run of TestStorm; each run's is one more")
)

// Two nodes of five leave, one after the other. Meanwhile processes are killed, or stopped and started again: the three
// coordinators, the leaving nodes, the nodes that take blocks. There may be a fallback, little room, and an application that
// ends, and readers never stop. No reader ever gets wrong bytes, or hears of a block that it is unknown, or lost when it is
// not; in the end each block is readable or named as lost, once. Each run has a seed, which a failure names:
//
//	go test ./e2e -run TestStorm -storms 1 -storm.seed SEED
func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take their time")
	}
	for i := range *stormRuns {
		seed := *stormSeed + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { newStorm(t, seed).run() })
	}
}

type storm struct {
	*trio
	rnd       *rand.Rand
	a, b      *node   // the leaving nodes
	holders   []*node // the nodes that stay
	notice    time.Duration
	app       string // the application of some of a's map outputs
	ended     bool   // the application was ended
	manifests map[*node]manifestView
	did       []string

	began time.Time
	mu    sync.Mutex
	gone  map[string]string // blocks that a reader was told are lost, and which node said so, and when
	reads map[int]int       // by status
}

func newStorm(t *testing.T, seed uint64) *storm {
	s := &storm{
		trio: newTrio(t, "lease: 9s"), rnd: rand.New(rand.NewPCG(seed, 5)), app: "application_1_0001",
		manifests: map[*node]manifestView{}, gone: map[string]string{}, reads: map[int]int{},
	}
	s.notice = time.Duration(15+s.rnd.IntN(15)) * time.Second
	var shared []string
	if s.rnd.IntN(3) > 0 {
		_, line := s.spill()
		shared = append(shared, line)
		s.note("a last resort")
	}
	rate := fmt.Sprintf("drain: {max_bytes_per_second: %dMiB}", 1+s.rnd.IntN(3))
	s.a, s.b = s.agent("host-a", append(shared, rate)...), s.agent("host-b", append(shared, rate)...)
	tight := s.rnd.IntN(2) == 0
	for _, host := range []string{"host-c", "host-d", "host-e"} {
		room := shared
		if tight {
			room = append(room[:len(room):len(room)], fmt.Sprintf("receive: {reserve_bytes: 16MiB, max_bytes: %dMB}", 2+s.rnd.IntN(8)))
		}
		s.holders = append(s.holders, s.agent(host, room...))
	}
	if tight {
		s.note("little room")
	}
	for i, n := range []*node{s.a, s.b} {
		n.fill(30, 10<<20)
		n.shuffle(8, 3<<20)
		s.ofApp(n, fmt.Sprintf("application_1_000%d", i+1))
	}
	return s
}

// ofApp gives a node map outputs as Spark on YARN has them: below a directory with the application's name.
func (s *storm) ofApp(n *node, app string) {
	s.t.Helper()
	var dirs []string
	for _, d := range n.spark() {
		dirs = append(dirs, filepath.Join(d, app))
	}
	c, err := corpus.Spark(dirs, 8, 3<<20, 8, n.seed()+1)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, m := range c.Files {
		if m.Block == m.Name {
			continue // a cached partition
		}
		at := "spark/" + app + "/"
		n.blocks = append(n.blocks, block{at + m.Name, at + m.Block, "", m.Bytes, hex.EncodeToString(m.SHA256[:])})
	}
}

func (s *storm) note(format string, args ...any) {
	at := ""
	if !s.began.IsZero() {
		at = fmt.Sprintf("%.1f s: ", time.Since(s.began).Seconds())
	}
	s.did = append(s.did, at+fmt.Sprintf(format, args...))
}

func (s *storm) run() {
	s.up()
	s.began = time.Now()
	over := make(chan struct{})
	var readers sync.WaitGroup
	for i := range uint64(2) {
		readers.Go(func() { s.read(rand.New(rand.NewPCG(i, 6)), over) })
	}
	s.leave(s.a)
	second := time.Now().Add(time.Duration(s.rnd.Int64N(int64(s.notice) * 3 / 4)))
	for end := time.Now().Add(2 * s.notice); time.Now().Before(end); {
		if !second.IsZero() && time.Now().After(second) {
			s.leave(s.b)
			second, end = time.Time{}, time.Now().Add(s.notice)
		}
		s.pause(300*time.Millisecond, 2*time.Second)
		s.strike()
	}
	for _, n := range []*node{s.a, s.b} {
		s.until(n.is("DECOMMISSIONED"))
		s.until(func() error {
			told := s.verb("manifest", n.host, "-o", "json")
			if told.code != 0 && told.code != 4 {
				return fmt.Errorf("no manifest of %s: %s", n.host, told.stderr)
			}
			s.manifests[n] = decode[manifestView](told)
			return nil
		})
	}
	close(over)
	readers.Wait()
	s.a.kill() // the machines go
	s.b.kill()
	s.check()
	s.t.Logf("reads by status: %v; %s moved %d, lost %d; %s moved %d, lost %d", s.reads, s.a.host, s.manifests[s.a].Blocks.Moved,
		s.manifests[s.a].Blocks.Lost, s.b.host, s.manifests[s.b].Blocks.Moved, s.manifests[s.b].Blocks.Lost)
	if s.t.Failed() {
		s.t.Logf("what was done: %s", strings.Join(s.did, "; "))
	}
}

// leave orders a node to leave, through whichever coordinator leads by then.
func (s *storm) leave(n *node) {
	s.t.Helper()
	s.until(func() error {
		if told := s.verb("decommission", n.host, "--timeout", s.notice.String()); told.code != 0 {
			return fmt.Errorf("order %s out: %s", n.host, told.stderr)
		}
		return nil
	})
	s.note("%s is to leave within %s", n.host, s.notice)
}

func (s *storm) pause(from, to time.Duration) {
	time.Sleep(from + time.Duration(s.rnd.Int64N(int64(to-from))))
}

// strike does one bad thing, or none.
func (s *storm) strike() {
	switch deed := s.rnd.IntN(20); {
	case deed < 4:
		s.again(s.all[s.rnd.IntN(len(s.all))], true)
	case deed < 9:
		s.again(s.holders[s.rnd.IntN(len(s.holders))].daemon, s.rnd.IntN(2) == 0)
	case deed < 12:
		s.again([]*node{s.a, s.b}[s.rnd.IntN(2)].daemon, s.rnd.IntN(2) == 0)
	case deed < 14 && !s.ended:
		if s.verb("apps", "end", s.app).code == 0 {
			s.mu.Lock()
			s.ended = true
			s.mu.Unlock()
			s.note("%s is over", s.app)
		}
	}
}

// again kills or stops a process, and starts it again a moment later.
func (s *storm) again(d *daemon, killed bool) {
	if killed {
		d.kill()
		s.note("kill %s", d.name)
	} else {
		d.stop()
		s.note("stop %s", d.name)
	}
	s.pause(50*time.Millisecond, 3*time.Second)
	d.start()
	s.note("start %s", d.name)
}

// of reports whether a block belongs to the application that ends.
func (s *storm) of(x block) bool { return strings.HasPrefix(x.id, "spark/"+s.app+"/") }

// read asks random nodes for random blocks until over is closed. A process that is down gives no answer; every answer has to
// be right.
func (s *storm) read(rnd *rand.Rand, over chan struct{}) {
	blocks := append(s.a.blocks[:len(s.a.blocks):len(s.a.blocks)], s.b.blocks...)
	for {
		select {
		case <-over:
			return
		default:
		}
		n, x := s.nodes[rnd.IntN(len(s.nodes))], blocks[rnd.IntN(len(blocks))]
		code, said := s.ask(n, x)
		s.mu.Lock()
		s.reads[code]++
		if code == http.StatusGone && !(s.ended && s.of(x)) {
			s.gone[x.whole] = fmt.Sprintf("%s, after %.1f s: %s", n.host, time.Since(s.began).Seconds(), said)
		}
		s.mu.Unlock()
		if code == http.StatusNotFound {
			s.t.Errorf("%s: %s is unknown after %.1f s: %s", n.host, x.id, time.Since(s.began).Seconds(), said)
		}
	}
}

// ask reads a block through a node, and fails the test if the bytes are wrong. The code is 0 if no answer came.
func (s *storm) ask(n *node, x block) (code int, said string) {
	got, err := n.onSocket().ask(s.t, http.MethodGet, x.id, "")
	switch {
	case err != nil:
		return 0, err.Error()
	case got.code == http.StatusOK && sum(got.body) != x.sha256:
		s.t.Errorf("%s: %s: %d bytes of sum %s are served, want %d of %s", n.host, x.id, len(got.body), sum(got.body), x.bytes, x.sha256)
	}
	return got.code, strings.TrimSpace(string(got.body))
}

// check compares the manifests with the blocks that there were, and with what readers were told and find now.
func (s *storm) check() {
	lost := map[string]string{}
	for n, m := range s.manifests {
		times := map[string]int{}
		for _, e := range m.Entries {
			times[e.ID]++
		}
		for id := range n.wholes() {
			if times[id] != 1 {
				s.t.Errorf("the manifest of %s names %s %d times", n.host, id, times[id])
			}
		}
		maps.Copy(lost, m.lost())
	}
	for id, who := range s.gone {
		if lost[id] == "" {
			s.t.Errorf("%s was called lost by %s, and is not", id, who)
		}
	}
	for _, n := range []*node{s.a, s.b} {
		for _, x := range n.blocks {
			s.until(func() error {
				code, said := s.ask(s.holders[s.rnd.IntN(len(s.holders))], x)
				switch {
				case code == http.StatusOK:
				case code == http.StatusGone && (lost[x.whole] != "" || s.ended && s.of(x)):
				default:
					return fmt.Errorf("%s: status %d: %s; the accounts of its loss: %q", x.id, code, said, lost[x.whole])
				}
				return nil
			})
		}
	}
}
