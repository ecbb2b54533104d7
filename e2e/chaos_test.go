package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var (
	chaosRuns = flag.Int("chaos", 3, "how many runs of TestChaos")
	chaosSeed = flag.Uint64("chaos.seed", 1, "the seed of the first run of TestChaos; each run's is one more")
)

// Whatever is killed, cut, full or flipped in a drain: at its end each block is readable with the right SHA-256, or named
// as lost; and at no time does a node serve half a block, or other bytes under its id. Each run has a seed, which a
// failure names:
//
//	go test ./e2e -run TestChaos -chaos 1 -chaos.seed SEED
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take their time")
	}
	for i := range *chaosRuns {
		seed := *chaosSeed + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { newChaos(t, seed).run() })
	}
}

// chaos is one run: a node that leaves, and two peers that take its blocks over unreliable wires.
type chaos struct {
	*fleet
	rnd    *rand.Rand
	source *node
	peers  []*node
	wires  map[*node]*proxy
	rotten map[*node]bool // bits were flipped on its disk
	gone   []string       // blocks that the source had when it indexed its stores, and that were removed or renamed since
	did    []string
}

func newChaos(t *testing.T, seed uint64) *chaos {
	f := newFleet(t)
	c := &chaos{fleet: f, rnd: rand.New(rand.NewPCG(seed, 4)), wires: map[*node]*proxy{}, rotten: map[*node]bool{}}
	c.source = f.agent("host-a", "drain: {max_bytes_per_second: 2MiB}")
	for _, host := range []string{"host-b", "host-c"} {
		n := f.agent(host)
		c.peers = append(c.peers, n)
		c.wires[n] = newProxy(t, n.peer)
		extra := []string{fmt.Sprintf("listen: {peer: %q, http: %q, socket: %s, advertise: %q}", n.peer, n.http, n.socket, c.wires[n].address())}
		if host == "host-b" && os.Getuid() == 0 && c.rnd.IntN(3) == 0 {
			extra = append(extra, "receive: {reserve_bytes: 0}")
			c.small(n.data())
		}
		f.write(host+".yaml", n.config(extra...)...)
	}
	c.source.fill(20, 4<<20)
	c.source.shuffle(5, 4<<20) // larger than what is sent past the page cache in one piece
	return c
}

// small mounts a disk of 3 MiB there: too little for half of the blocks.
func (c *chaos) small(dir string) {
	c.t.Helper()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		c.t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		return // even root may lack the right to mount
	}
	c.t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			c.t.Error(err)
		}
	})
	c.note("host-b has a disk of 3 MiB")
}

func (c *chaos) note(format string, args ...any) { c.did = append(c.did, fmt.Sprintf(format, args...)) }

func (c *chaos) run() {
	c.start()
	c.until(c.source.knows(2))
	if c.rnd.IntN(3) == 0 {
		c.live()
	}
	reading, stop := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	readers.Go(func() { c.readAll(reading) })
	c.source.verb("decommission", "--self", "--timeout", "30s").exits(0)
	for range 3 + c.rnd.IntN(4) {
		time.Sleep(time.Duration(50+c.rnd.IntN(500)) * time.Millisecond)
		c.strike()
	}
	for _, n := range c.peers {
		c.wires[n].heal()
	}
	c.source.drained()
	c.until(c.source.is("DECOMMISSIONED"))
	m := c.source.manifest()
	stop()
	readers.Wait()
	c.source.kill() // the machine goes
	c.check(m)
	if c.t.Failed() {
		c.t.Logf("what was done: %s", strings.Join(c.did, "; "))
	}
}

// live lets the source index its stores, as a node does that has been up for a while. Then it writes, replaces, removes
// and renames files: when the notice comes, the index is no longer true.
func (c *chaos) live() {
	files := slices.DeleteFunc(slices.Clone(c.source.blocks), func(x block) bool { return x.path == "" })
	c.until(c.source.indexed(len(files)))
	shuffle := slices.DeleteFunc(slices.Clone(c.source.blocks), func(x block) bool { return x.path != "" })
	for i, x := range files {
		switch deed := c.rnd.IntN(8); deed {
		case 0:
			c.note("write into %s in place", x.id)
			files[i] = c.write(x, x.path, x.bytes)
		case 1:
			c.note("write more into %s in place", x.id)
			files[i] = c.write(x, x.path, x.bytes+1+c.rnd.Int64N(100_000))
		case 2, 3:
			c.note("put another file in the place of %s", x.id)
			files[i] = c.write(x, x.path+".new", x.bytes)
			c.do(os.Rename(x.path+".new", x.path))
			files[i].path = x.path
		case 4:
			c.note("remove %s", x.id)
			c.do(os.Remove(x.path))
			files[i].id = ""
			c.gone = append(c.gone, x.id)
		case 5:
			c.note("rename %s", x.id)
			files[i].path, files[i].id = x.path+"-b", x.id+"-b"
			files[i].whole = files[i].id
			c.do(os.Rename(x.path, files[i].path))
			c.gone = append(c.gone, x.id)
		}
	}
	files = slices.DeleteFunc(files, func(x block) bool { return x.id == "" })
	for i := range c.rnd.IntN(3) {
		name := fmt.Sprintf("host-a/new%d/file", i) // in directories that are new, too
		x := block{id: "cache/-/" + name, whole: "cache/-/" + name}
		path := filepath.Join(c.source.cache(), name)
		c.do(os.MkdirAll(filepath.Dir(path), 0o755))
		c.note("add %s", x.id)
		files = append(files, c.write(x, path, 1+c.rnd.Int64N(200_000)))
	}
	c.source.blocks = append(files, shuffle...)
	if c.rnd.IntN(4) == 0 {
		c.rot(c.source, "index/*")
	}
}

func (c *chaos) do(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// write fills a file, new or not, with bytes of its own.
func (c *chaos) write(x block, path string, bytes int64) block {
	c.t.Helper()
	content := make([]byte, bytes)
	for i := range content {
		content[i] = byte(c.rnd.Uint32())
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	c.do(err)
	_, err = f.Write(content)
	c.do(err)
	c.do(f.Close())
	x.path, x.bytes, x.sha256 = path, bytes, sum(content)
	return x
}

// strike does one bad thing.
func (c *chaos) strike() {
	n := c.peers[c.rnd.IntN(len(c.peers))]
	moment := time.Duration(50+c.rnd.IntN(400)) * time.Millisecond
	switch c.rnd.IntN(6) {
	case 0:
		c.note("kill %s", n.host)
		c.again(n, moment, func() {})
	case 1:
		c.note("kill host-a")
		c.again(c.source, moment, func() {})
	case 2:
		c.note("cut %s off for %s", n.host, moment)
		c.wires[n].cut(true)
		time.Sleep(moment)
		c.wires[n].heal()
	case 3:
		c.note("flip a bit on the wire to %s", n.host)
		c.wires[n].flip()
	case 4:
		c.rot(n, "vault/segments/seg-*")
	case 5:
		c.again(n, moment, func() { c.rot(n, "vault/catalog.db") })
	}
}

// again kills a node, and starts it a moment later.
func (c *chaos) again(n *node, after time.Duration, meanwhile func()) {
	n.kill()
	meanwhile()
	time.Sleep(after)
	n.start()
}

// rot flips a bit in one of the agent's files, if there is one.
func (c *chaos) rot(n *node, pattern string) {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(n.data(), pattern))
	if err != nil || len(files) == 0 {
		return
	}
	f, err := os.OpenFile(files[c.rnd.IntN(len(files))], os.O_RDWR, 0)
	if err != nil {
		return // it was removed meanwhile
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return
	}
	at := c.rnd.Int64N(info.Size())
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return
	}
	b[0] ^= 1 << c.rnd.IntN(8)
	if _, err := f.WriteAt(b[:], at); err != nil {
		return
	}
	c.rotten[n] = true
	c.note("flip a bit of %s's %s at %d of %d", n.host, filepath.Base(f.Name()), at, info.Size())
}

// readAll reads blocks from the peers until ctx ends. Whatever a peer serves whole must have the right bytes.
func (c *chaos) readAll(ctx context.Context) {
	var doors []door
	for _, n := range c.peers {
		doors = append(doors, n.onSocket().alone())
	}
	for i := 0; ctx.Err() == nil; i++ {
		x := c.source.blocks[i%len(c.source.blocks)]
		c.whole(doors[i/len(c.source.blocks)%len(doors)], x)
		time.Sleep(5 * time.Millisecond)
	}
}

// whole asks one node for a block, and fails the test if the node serves other bytes under its id. It returns whether the
// node served the block, and if not, what it answered.
func (c *chaos) whole(d door, x block) (served bool, said string) {
	a, err := d.ask(c.t, http.MethodGet, x.id, "")
	switch {
	case err != nil:
		return false, err.Error()
	case a.code != http.StatusOK:
		return false, fmt.Sprintf("status %d: %s", a.code, strings.TrimSpace(string(a.body)))
	case sum(a.body) != x.sha256:
		c.t.Errorf("%s: %s: %d bytes of sum %s are served, want %d of %s", d.name, x.id, len(a.body), sum(a.body), x.bytes, x.sha256)
	}
	return true, ""
}

// check looks for every block after the source is gone.
func (c *chaos) check(m manifestView) {
	lost := m.lost()
	holder := map[string]*node{}
	for _, e := range m.Entries {
		if slices.Contains(c.gone, e.ID) {
			c.t.Errorf("%s is %s, which was gone before the notice", e.ID, e.Outcome)
		}
		for _, n := range c.peers {
			if e.Outcome == "moved" && e.Peer == n.host {
				holder[e.ID] = n
			}
		}
	}
	d := c.peers[c.rnd.IntN(len(c.peers))].onSocket()
	alone := map[*node]map[string]bool{}
	for _, n := range c.peers {
		alone[n] = map[string]bool{}
		for _, x := range c.source.blocks {
			served, _ := c.whole(n.onSocket().alone(), x)
			alone[n][x.id] = served
		}
	}
	for _, x := range c.source.blocks {
		at, moved := holder[x.whole]
		served, said := c.whole(d, x)
		switch {
		case served:
		case lost[x.whole] != "":
		case moved && c.rotten[at]: // named by the holder, whose disk it was
		case moved:
			c.t.Errorf("%s moved to %s, and is neither there nor lost: %s", x.id, at.host, said)
		default:
			c.t.Errorf("%s is in no account: %s", x.id, said)
		}
	}
	for _, n := range c.peers { // a node has the whole of a map output or nothing of it
		for id := range c.source.wholes() {
			if c.rotten[n] {
				continue
			}
			parts := slices.Collect(func(yield func(bool) bool) {
				for _, x := range c.source.blocks {
					if x.whole == id && !yield(alone[n][x.id]) {
						return
					}
				}
			})
			if slices.Contains(parts, true) && slices.Contains(parts, false) {
				c.t.Errorf("%s serves a part of %s", n.host, id)
			}
		}
	}
}
