package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// powered is a file system on a drive whose power can be cut.
type powered struct {
	t       *testing.T
	fs, dir string
	drive   *drive
	disk    *image
}

const poweredBytes = 768 << 20 // btrfs sets much of it apart

func newPowered(t *testing.T, fs string) *powered {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes take their time")
	}
	mounts(t, fs)
	p := &powered{t: t, fs: fs, dir: t.TempDir(), drive: newDrive(t, poweredBytes, fs)}
	p.disk = loop(t, p.drive.file, fs, p.dir)
	return p
}

// cut cuts the power: what the kernel still has in memory is lost, and part of what the drive has in its cache.
func (p *powered) cut(machine ...*daemon) {
	p.t.Helper()
	p.cutLosing(rand.Float64(), machine...)
}

// cutLosing has the drive lose about that share of its cache. The processes that used the disk are halted first: a receipt given after the
// cut would be for blocks that no disk takes any more.
func (p *powered) cutLosing(share float64, machine ...*daemon) {
	p.t.Helper()
	for _, d := range machine {
		d.halt()
	}
	if err := p.drive.cut(share); err != nil {
		p.t.Fatal(err)
	}
	for _, d := range machine {
		d.kill()
	}
	p.disk.eject()
	disk, err := tryLoop(p.t, p.drive.file, p.fs, p.dir)
	if err != nil {
		p.t.Fatalf("after the cut: %v", err)
	}
	p.disk = disk
}

// writeAll writes to the disk what the kernel still has in memory.
func (p *powered) writeAll() {
	p.t.Helper()
	d, err := os.Open(p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		p.t.Fatal(err)
	}
}

// holds puts all directories of a node on the disk.
func (p *powered) holds(n *node, extra ...string) {
	n.dir = filepath.Join(p.dir, n.host)
	n.reconfigure(extra...)
}

// onEach runs a story on each file system.
func onEach(t *testing.T, story func(t *testing.T, fs string)) {
	for _, fs := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fs, func(t *testing.T) { story(t, fs) })
	}
}

// amid waits for a random time, so that each cut comes at another moment.
func amid() { time.Sleep(time.Duration(rand.IntN(700)) * time.Millisecond) }

// has fails the test unless the node itself has the blocks that it gave receipts for, byte for byte.
func (n *node) has(t *testing.T, blocks []block, receipted map[string]string) {
	t.Helper()
	var mine []block
	for _, x := range blocks {
		if receipted[x.whole] == n.host {
			mine = append(mine, x)
		}
	}
	t.Logf("%s has given receipts for %d files of %d", n.host, len(mine), len(blocks))
	n.onSocket().alone().serves(t, mine)
}

// back starts a node, and waits until the coordinator hears it.
func (n *node) back() {
	n.start()
	n.f.until(n.beatsAfter(time.Now()))
}

// A receiver's power is cut amid a drain, and again while it makes files of what landed. What it gave receipts for is there each time.
func TestTakersPowerIsCut(t *testing.T) {
	onEach(t, func(t *testing.T, fs string) {
		disk := newPowered(t, fs) // before the fleet, so that the fleet has ended when it is unmounted
		f := newFleet(t)
		a, b := f.agent("host-a", "drain: {max_bytes_per_second: 10MiB}"), f.agent("host-b")
		disk.holds(b)
		b.reconfigure(fmt.Sprintf("stores: [{name: cache, kind: cache, layout: files, land: place, paths: [%s]}, {name: spark, kind: shuffle, layout: spark, paths: [%s]}]", b.cache(), b.spark()[0]))
		a.fill(2500, 24<<20) // more segments than the disk is asked for at once
		a.shuffle(6, 24<<20)
		f.up()
		a.verb("decommission", "--self", "--timeout", "90s").exits(0)
		a.underWay(4)
		for range 3 {
			amid()
			receipted := a.receipted()
			disk.cut(b.daemon)
			b.back()
			b.has(t, a.blocks, receipted)
		}
		a.drained()
		for range 3 {
			amid()
			disk.cut(b.daemon)
			t.Logf("%d files had their names", b.whole(t, a.blocks))
			b.back()
			b.has(t, a.blocks, a.receipted())
		}
		a.allMoved(a.manifest())
		a.kill()
		b.onSocket().serves(t, a.blocks)
	})
}

// The power of all machines is cut at once. What was decided stands, what was receipted is there, and the node goes on leaving when it is
// back.
func TestPowerOfAllIsCut(t *testing.T) {
	onEach(t, func(t *testing.T, fs string) {
		disk := newPowered(t, fs)
		f := newFleet(t, "data_dir: "+filepath.Join(disk.dir, "coordinator"))
		a, b, c := f.agent("host-a"), f.agent("host-b"), f.agent("host-c")
		disk.holds(a, "drain: {max_bytes_per_second: 3MiB}")
		disk.holds(b)
		disk.holds(c)
		a.fill(1000, 8<<20)
		a.shuffle(8, 6<<20)
		f.up()
		disk.writeAll() // as if the engine had written its files more than a minute ago
		a.verb("decommission", "--self", "--timeout", "90s").exits(0)
		a.underWay(4)
		before := a.status().Notice
		for range 3 {
			amid()
			receipted := a.receipted()
			disk.cut(f.coordinator, a.daemon, b.daemon, c.daemon)
			f.coordinator.start()
			for _, n := range f.nodes {
				n.back()
			}
			b.has(t, a.blocks, receipted)
			c.has(t, a.blocks, receipted)
		}
		f.sameNotice("the agent after the cuts", a.drained().Notice, before)
		f.until(a.is("DECOMMISSIONED"))
		a.allMoved(a.manifest())
		a.kill()
		b.onSocket().serves(t, a.blocks)
		c.onSocket().serves(t, a.blocks)
	})
}

// The coordinator's power is cut each time that it has said yes. What it said yes to stands, though no agent has heard of it.
func TestCoordinatorsPowerIsCut(t *testing.T) {
	onEach(t, func(t *testing.T, fs string) {
		disk := newPowered(t, fs)
		f := newFleet(t, "data_dir: "+filepath.Join(disk.dir, "coordinator"), "lease: 5m")
		n := f.agent("host-a")
		f.up()
		disk.writeAll()
		n.halt()
		for range 2 {
			f.verb("decommission", n.host, "--timeout", "10m").exits(0)
			disk.cut(f.coordinator)
			f.coordinator.start()
			f.until(n.is("DECOMMISSIONING"))
			f.verb("recommission", n.host).exits(0)
			disk.cut(f.coordinator)
			f.coordinator.start()
			f.until(n.is("ACTIVE"))
		}
	})
}
