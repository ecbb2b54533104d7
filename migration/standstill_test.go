package migration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/nodetest"
	"github.com/lifeboat/lifeboat/migration/receiver"
)

// Whatever peers do and whatever is said of them, if there is one with room for everything, or a fallback, that is there nearly all the
// time, then everything is moved, soon, no byte is sent after the end, and no room stays set aside at peers. It runs fourteen seeds, in
// four of which blocks once waited for a peer that was not sent to; LIFEBOAT_WANDERS=N runs N seeds instead, LIFEBOAT_WANDER=N that seed
// alone.
func TestNothingStandsStillWhileSomebodyHasRoom(t *testing.T) {
	seeds, stories := []int{50, 169, 181, 228}, 10
	if n, err := strconv.Atoi(os.Getenv("LIFEBOAT_WANDERS")); err == nil {
		seeds, stories = nil, n
	}
	for seed := range stories {
		seeds = append(seeds, seed)
	}
	if seed, err := strconv.Atoi(os.Getenv("LIFEBOAT_WANDER")); err == nil {
		seeds = []int{seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newStory(t, seed)
			synctest.Test(t, s.tell)
		})
	}
}

// soon is how long any of these drains takes at most: things happen to peers for 40 s.
const soon = 45 * time.Second

// story is a node that leaves, and peers to which things happen.
type story struct {
	rnd   *rand.Rand
	from  *node
	disks *nodetest.Disks
	bytes int64 // of each block
	count int
	ports []*port
	haven int    // the port that has room for everything; less than 0: only the fallback has
	all   string // a description of the story, for the message of a failure

	within   time.Duration // 0: there is no deadline
	fallback *larder
	others   []*nodetest.Sender

	mu    sync.Mutex
	until time.Time
	late  int // bytes that were sent after until
}

// port is a peer.
type port struct {
	*node
	disks *filling
	link  *rate.Limiter
	haven bool // it has room for everything, and is there
	quota int64

	mu      sync.Mutex
	told    Peer
	known   bool // the coordinator names it
	frozen  bool // what the coordinator says of it does not change
	lies    func(*Peer)
	refuses string
	advised bool
	down    bool
	hung    chan struct{} // closed when the peer goes on; nil: it does not hang
	conns   map[net.Conn]bool
}

// filling are disks on which landed blocks take room.
type filling struct{ *nodetest.Disks }

func (f *filling) Take(need int64, among []string) (string, func(int64), bool) {
	dir, release, ok := f.Disks.Take(need, among)
	return dir, func(written int64) {
		f.Use(dir, written)
		release(written)
	}, ok
}

func (s *story) roll(n int) int { return s.rnd.IntN(n) }

func (s *story) one(in int) bool { return s.roll(in) == 0 }

func (s *story) say(format string, a ...any) { s.all += fmt.Sprintf(format+"\n", a...) }

func newStory(t *testing.T, seed int) *story {
	s := &story{rnd: rand.New(rand.NewPCG(uint64(seed), 23))}
	cache := filesStore
	if s.one(3) {
		cache = placeStore
	}
	s.from, s.disks = onDisks(t, "a", []inventory.StoreConfig{with(sparkStore, "d0", "d1"), with(cache, "c0")}, "v")
	managers := []string{filepath.Join(s.from.Dir, "d0/blockmgr-x"), filepath.Join(s.from.Dir, "d1/blockmgr-y")}
	size := 1 << (10 + s.roll(7))
	for i := range []int{0, 10, 100}[s.roll(3)] {
		writeMapOutput(t, managers, 1, i, size)
		s.bytes, s.count = s.bytes+int64(size), s.count+1
	}
	file := func(name string, size int) {
		write(t, filepath.Join(s.from.Dir, "c0", name), contentOf(name, size))
		s.bytes, s.count = s.bytes+int64(size), s.count+1
	}
	for i := range []int{0, 10, 100}[s.roll(3)] {
		file(fmt.Sprint("f-", i), 1<<(10+s.roll(6)))
	}
	for i := range s.roll(4) {
		file(fmt.Sprint("large-", i), s.roll([]int{3 << 20, 3 << 20, 12 << 20}[s.roll(3)]))
	}
	s.within = []time.Duration{0, 30 * time.Second, 2 * time.Minute}[s.roll(3)]
	if s.one(3) {
		s.fallback = newLarder()
		s.fallback.latency = 20 * time.Millisecond
	}
	ports := 1 + s.roll(9)
	haven := s.roll(ports)
	if s.fallback != nil && s.one(2) {
		haven = -1
	}
	s.haven = haven
	s.say("%d blocks of %d bytes within %v, cache lands in %s, fallback %v, haven %d", s.count, s.bytes, s.within, cache.Land, s.fallback != nil, haven)
	for i := range ports {
		s.ports = append(s.ports, s.port(t, i, i == haven))
	}
	if haven >= 0 && ports > 2 && s.one(3) { // both together have twice the room
		for i := range 3 {
			p := s.ports[(haven+i)%ports]
			p.haven, p.quota = true, 0
			p.disks.Give(p.More[0], 2*s.bytes/3+4<<20)
			p.link.SetLimit(max(p.link.Limit(), 4<<20))
			s.say("%s has room for %d in its vault for certain", p.Name, 2*s.bytes/3+4<<20)
		}
	}
	return s
}

func (s *story) port(t *testing.T, i int, haven bool) *port {
	var stores []inventory.StoreConfig
	if s.one(2) {
		stores = append(stores, with(sparkStore, "d0", "d1"))
	}
	if s.one(2) {
		stores = append(stores, with([]inventory.StoreConfig{filesStore, placeStore}[s.roll(2)], "c0"))
	}
	n, f := onDisks(t, string(rune('b'+i)), stores, "v")
	p := &port{node: n, disks: &filling{f}, haven: haven, known: true, conns: map[net.Conn]bool{}}
	n.plain, n.Disks = true, p.disks
	n.Room = func(dir string) int64 { return p.disks.Left(dir) }
	p.filled(s)()
	if haven {
		p.disks.Give(n.More[0], 1<<40)
	}
	p.told = Peer{Node: n.Name, Address: n.Name, Zone: "z", Pool: []string{"own", "other", "third-spot"}[s.roll(3)]}
	p.frozen = s.one(3)
	p.lies = []func(*Peer){
		func(*Peer) {}, func(*Peer) {}, func(*Peer) {},
		func(p *Peer) { p.VaultBytes, p.Places, p.LargestBytes, p.LargestVaultBytes = nil, nil, 0, 0 },
		func(p *Peer) { p.Places = []string{"spark", "cache"} },
		func(p *Peer) { p.Places = nil },
		func(p *Peer) { p.RoomBytes, p.VaultBytes, p.LargestBytes, p.LargestVaultBytes = 0, nil, 0, 0 },
		func(p *Peer) {
			p.RoomBytes, p.VaultBytes, p.LargestBytes, p.LargestVaultBytes = 1<<40, new(int64(1<<40)), 1<<40, 1<<40
		},
		func(p *Peer) { p.VaultBytes, p.LargestVaultBytes = new(int64), 0 },
	}[s.roll(9)]
	speed := 1 << (19 + s.roll(6))
	if haven {
		speed = max(4<<20, speed)
		if s.within != 30*time.Second && s.one(2) {
			speed = max(int(s.bytes)/(1+s.roll(15)), 256<<10)
		}
	}
	p.link = rate.NewLimiter(rate.Limit(speed), 16<<10)
	p.advised = s.one(5)
	streams := 4 + s.roll(8)
	if !haven && s.one(3) {
		p.quota = 1 + int64(s.roll(int(s.bytes)+1))
	}
	n.tune = func(cfg *receiver.Config) {
		cfg.Admit = func(bool) receiver.Admission {
			p.mu.Lock()
			defer p.mu.Unlock()
			return receiver.Admission{Refused: p.refuses, Retry: time.Second, Advised: p.advised}
		}
		cfg.MaxStreams, cfg.MaxBytes = streams, p.quota
	}
	var has []string
	for _, c := range stores {
		has = append(has, c.Name+"/"+c.Land)
	}
	s.say("%s: has %v, %d in its vault, pool %s, advised %v, %d B/s, frozen %v, haven %v", n.Name, has, p.disks.Left(n.More[0]), p.told.Pool, p.advised, speed, p.frozen, haven)
	return p
}

// filled gives the disks other room, unless the peer is the haven.
func (p *port) filled(s *story) (do func()) {
	dirs := []string{}
	for _, st := range p.Stores {
		dirs = append(dirs, st.Paths...)
	}
	if !p.haven {
		dirs = append(dirs, p.More[0])
	}
	room := map[string]int64{}
	for _, dir := range dirs {
		room[dir] = []int64{0, int64(s.roll(int(s.bytes) + 1)), 1 << 40}[s.roll(3)]
	}
	return func() {
		for dir, bytes := range room {
			p.disks.Give(dir, bytes)
		}
	}
}

// tells returns what the coordinator says of a peer; known is false if it does not name the peer.
func (p *port) tells() (is Peer, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told.VaultBytes == nil || !p.frozen {
		all, vault := p.receiver.Room()
		p.told.RoomBytes, p.told.LargestBytes, p.told.VaultBytes, p.told.LargestVaultBytes = all.Bytes, all.LargestBytes, &vault.Bytes, vault.LargestBytes
		p.told.Places, p.told.Advised = nil, p.advised
		for _, st := range p.Stores {
			if st.Land == inventory.LandPlace {
				p.told.Places = append(p.told.Places, st.Name)
			}
		}
	}
	is = p.told
	p.lies(&is)
	return is, p.known
}

// happens has something happen to a peer at some time. A haven goes on taking blocks, and is away for two seconds at most.
func (s *story) happens(p *port) {
	at, lasts := time.Duration(s.roll(20_000))*time.Millisecond, time.Duration(200+s.roll(20_000))*time.Millisecond
	if p.haven {
		lasts = min(lasts, 2*time.Second)
	} else if s.one(8) {
		lasts = time.Hour
	}
	nothing := func() {}
	all := []struct {
		what       string
		begin, end func()
	}{
		{"is down", p.set(p.goDown), p.set(func() { p.down = false })},
		{"hangs", p.set(p.hang), p.set(p.goOn)},
		{"has other room", p.filled(s), nothing},
		{"loses its stores", func() { p.lose(true) }, nothing},
		{"is advised, or not", p.set(func() { p.advised = !p.advised }), nothing},
		{"is not known", p.set(func() { p.known = false }), p.set(func() { p.known = true })},
		{"refuses", p.set(func() { p.refuses = "it is under notice itself" }), p.set(func() { p.refuses = "" })},
	}
	if p.haven {
		all = all[:len(all)-1]
	}
	is := all[s.roll(len(all))]
	s.say("%s %s at %v for %v", p.Name, is.what, at, lasts)
	if at < 5*time.Second && s.one(4) {
		s.say("and from the first")
		is.begin()
	}
	time.AfterFunc(at, is.begin)
	time.AfterFunc(at+lasts, is.end)
}

func (p *port) set(do func()) func() {
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		do()
	}
}

func (p *port) goDown() {
	p.down = true
	for c := range p.conns {
		go c.Close()
	}
}

func (p *port) hang() {
	if p.hung == nil {
		p.hung = make(chan struct{})
	}
}

func (p *port) goOn() {
	if p.hung != nil {
		close(p.hung)
	}
	p.hung = nil
}

// lose has the disks of the stores return errors, or be well again.
func (p *port) lose(bad bool) {
	for _, st := range p.Stores {
		for _, dir := range st.Paths {
			p.disks.Set(p.disks.Bad, dir, bad)
		}
	}
}

// dial is called before each connection.
func (p *port) dial(ctx context.Context) error {
	p.mu.Lock()
	down, hung := p.down, p.hung
	p.mu.Unlock()
	if hung != nil {
		select {
		case <-hung:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if down {
		return errors.New("connection refused")
	}
	return nil
}

// moored is a connection at the peer's end.
type moored struct {
	net.Conn
	p *port
}

func (c *moored) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.p.mu.Lock()
	hung := c.p.hung
	c.p.mu.Unlock()
	if hung != nil {
		<-hung
	}
	return n, err
}

func (c *moored) Close() error {
	c.p.mu.Lock()
	delete(c.p.conns, c)
	c.p.mu.Unlock()
	return c.Conn.Close()
}

// noted counts the bytes that are sent after the end.
type noted struct {
	net.Conn
	s *story
}

func (c noted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if !c.s.until.IsZero() && time.Now().After(c.s.until) {
		c.s.late += n
	}
	return n, err
}

func (s *story) tell(t *testing.T) {
	s.disks.News = make(chan struct{})
	nodes := map[string]*port{}
	var peers []*node
	for _, p := range s.ports {
		p.disks.News = make(chan struct{})
		p.mangle = func(conn net.Conn) net.Conn {
			m := &moored{conn, p}
			p.mu.Lock()
			p.conns[m] = true
			p.mu.Unlock()
			return m
		}
		nodes[p.Name], peers = p, append(peers, p.node)
	}
	tr := newTrip(t, s.from, peers...)
	tr.cfg.Zone, tr.cfg.Pool, tr.cfg.Advised = "z", "own", func() bool { return true }
	tr.cfg.Connections = 1 + s.roll(3)
	if s.within != 30*time.Second && s.one(4) {
		link := rate.NewLimiter(rate.Limit(int(1)<<(20+s.roll(4))), 16<<10)
		tr.wrap = func(conn net.Conn) net.Conn { return narrowLink{conn, link} }
		s.say("its own link has %.0f B/s", link.Limit())
	}
	if s.fallback != nil {
		if s.haven >= 0 && s.one(2) {
			at, lasts := time.Duration(s.roll(10000))*time.Millisecond, time.Duration(s.roll(30000))*time.Millisecond
			began := time.Now()
			s.say("the fallback fails at %v for %v", at, lasts)
			s.fallback.trip = func(string) error {
				if since := time.Since(began); since < at || since > at+lasts {
					return nil
				}
				return errors.New("no such bucket")
			}
		}
		tr.cfg.Fallback = s.fallback.as(lastresort.LayoutBlocks)
	}
	first := time.Now().Add(time.Duration(s.roll(2)*s.roll(3000)) * time.Millisecond)
	tr.cfg.Peers = func() (list []Peer) {
		for _, p := range s.ports {
			if is, known := p.tells(); known && (p.haven || time.Now().After(first)) {
				list = append(list, is)
			}
		}
		return list
	}
	tr.dials = func(ctx context.Context, p Peer) error { return nodes[p.Node].dial(ctx) }
	tr.links = func(p Peer, conn net.Conn) net.Conn { return narrowLink{noted{conn, s}, nodes[p.Node].link} }
	ctx := within(t, time.Hour)
	if s.within > 0 {
		ctx = within(t, s.within)
		s.until, _ = ctx.Deadline()
	}
	for range s.roll(1 + 3*len(s.ports)) {
		s.happens(s.ports[s.roll(len(s.ports))])
	}
	if s.one(3) {
		dirs := slices.Concat(s.from.Stores[0].Paths, s.from.Stores[1].Paths)
		dir, at, lasts := dirs[s.roll(len(dirs))], time.Duration(1000+s.roll(5000))*time.Millisecond, time.Duration(100+s.roll(8000))*time.Millisecond
		s.say("disk %s does not answer at %v for %v", filepath.Base(dir), at, lasts)
		time.AfterFunc(at, func() { s.disks.Set(s.disks.Bad, dir, true) })
		time.AfterFunc(at+lasts, func() { s.disks.Set(s.disks.Bad, dir, false) })
	}
	list, begin := tr.cfg.Peers, sync.OnceFunc(s.goesOn(t, tr))
	tr.cfg.Peers = func() []Peer { begin(); return list() }
	sum, entries := tr.run(ctx)
	for _, other := range s.others {
		other.Conn.Close()
	}
	for _, p := range s.ports {
		p.set(p.goOn)() // so that all may end
	}
	synctest.Wait()
	s.check(t, sum, entries)
}

// goesOn returns what begins with the drain and goes on beside it: engines write, and other nodes leave too.
func (s *story) goesOn(t *testing.T, tr *trip) (begin func()) {
	var late []time.Duration
	for range s.roll(2) * s.roll(20) {
		late = append(late, time.Duration(100+s.roll(15_000))*time.Millisecond)
	}
	shared := s.one(3)
	s.say("%d files are written amid it, others leave, too: %v", len(late), shared)
	return func() {
		for i, at := range late {
			time.AfterFunc(at, func() {
				if name := fmt.Sprint("late-", i); !tr.drain.plan.Sealed() {
					write(t, filepath.Join(s.from.Dir, "c0", name), contentOf(name, 5000))
				}
			})
		}
		for _, p := range s.ports {
			p.mu.Lock()
			takes := p.refuses == ""
			p.mu.Unlock()
			if shared && takes {
				s.others = append(s.others, newSender(t, t.Context(), p.receiver, "z"))
			}
		}
	}
}

// check checks the outcome: there was room and time for every block, so all must have moved, and soon.
func (s *story) check(t *testing.T, sum manifest.Summary, entries []manifest.Entry) {
	took := sum.Finished.Sub(sum.Started)
	for _, p := range s.ports {
		p.disks.WantNothingReserved(t)
		if rests := p.Vault.Takes(); p.quota > 0 {
			p.lose(false)
			p.disks.Give(p.More[0], 1<<40)
			if all, _ := p.receiver.Room(); all.Bytes != max(0, p.quota-p.quota/5-rests) {
				t.Errorf("%s has %d of its quota of %d left, with %d at rest", p.Name, all.Bytes, p.quota, rests)
			}
		}
	}
	why := map[string]int{}
	for _, e := range entries {
		if e.Outcome != manifest.Moved {
			why[e.Reason]++
		} else {
			why[inventory.BlockID(e.ID).Store()+" to "+e.Peer]++
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sum.Lost.Blocks > 0 || sum.Moved.Blocks < int64(s.count) || took > soon || s.late > 0 {
		keys := slices.Sorted(maps.Keys(why))
		for _, k := range keys[:min(len(keys), 12)] {
			s.say("%4d %s", why[k], k)
		}
		t.Errorf("%d of %d moved, %d lost in %v, %d bytes after the end\n%s", sum.Moved.Blocks, s.count, sum.Lost.Blocks, took, s.late, s.all)
	}
}
