package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ownDisk puts an agent's data_dir on a small file system of its own. Call it before the fleet is started.
func (n *node) ownDisk(file string) *image {
	n.f.t.Helper()
	if err := os.MkdirAll(n.data(), 0o750); err != nil {
		n.f.t.Fatal(err)
	}
	disk := loop(n.f.t, file, "ext4", n.data())
	n.f.t.Cleanup(n.kill) // before it is unmounted
	return disk
}

// diskImage makes a file system in a file, to be mounted later.
func diskImage(t *testing.T) (file string) {
	t.Helper()
	mounts(t, "ext4")
	file = filepath.Join(t.TempDir(), "image")
	makeImage(t, file, 256<<20, "ext4")
	return file
}

// The disk of data_dir hangs, and those of the stores do not. The blocks leave all the same before the deadline, and the coordinator gets a
// true account.
func TestDataDirThatHangsDelaysNobody(t *testing.T) {
	story(t)
	for _, row := range []struct {
		name  string
		known bool // the agent knows that the disk hangs when the notice comes
		amid  bool // the disk hangs amid the drain
		every string
	}{
		{"long before the notice", true, false, probeEvery},
		{"just before the notice", false, false, "disks: {}"},
		{"amid the drain", false, true, probeEvery},
		{"amid the drain before anybody has looked", false, true, "disks: {}"},
	} {
		t.Run(row.name, func(t *testing.T) {
			file := diskImage(t)
			f := newFleet(t)
			a, b := f.agent("host-a"), f.agent("host-b", probeEvery)
			if a.reconfigure(row.every); row.amid {
				a.reconfigure(row.every, "drain: {max_bytes_per_second: 1MiB}")
			}
			disk := a.ownDisk(file)
			a.fill(300, 6<<20)
			a.shuffle(4, 512<<10)
			f.up()
			f.until(a.disk(a.data(), "HEALTHY"))
			leave := func() time.Time {
				began := time.Now()
				a.verb("decommission", "--self", "--timeout", drainLead.String(), "--reason", row.name).exits(0)
				return began
			}
			var began time.Time
			if row.amid {
				began = leave()
				a.underWay(20)
				disk.freeze()
			} else {
				disk.freeze()
				if row.known {
					f.until(a.disk(a.data(), "IO_HANG"))
				}
				began = leave()
			}
			t.Logf("told after %s", time.Since(began))
			f.until(a.is("DECOMMISSIONED"))
			took := time.Since(began)
			t.Logf("left after %s", took)
			if took > drainLead {
				t.Errorf("the node was done after %s, its deadline was %s", took, drainLead)
			}
			a.allMoved(a.manifest())
			b.onSocket().alone().serves(t, a.blocks)
			if strings.Contains(a.logged(), "no peer took the manifest") {
				t.Error("no peer has a copy of the account")
			}
			if err := disk.thaw(); err != nil {
				t.Fatal(err)
			}
			f.until(a.logs("the manifest of the drain is in data_dir"))
			if got := a.receipted(); len(got) != len(a.wholes()) {
				t.Errorf("the account names %d blocks, want %d", len(got), len(a.wholes()))
			}
			a.kill()
			a.start()
			a.drained()
			a.allMoved(a.manifest())
		})
	}
}

// A process that is killed while the disk of data_dir hangs loses only what was not yet written there. Blocks whose receipts it lost are
// not sent twice: the peers have them.
func TestKilledWhileDataDirHangs(t *testing.T) {
	file := diskImage(t)
	f := newFleet(t)
	a, b := f.agent("host-a", probeEvery), f.agent("host-b", probeEvery)
	a.reconfigure(probeEvery, "drain: {max_bytes_per_second: 1MiB}")
	disk := a.ownDisk(file)
	a.fill(300, 6<<20)
	f.up()
	leave := func() { a.verb("decommission", "--self", "--timeout", "5m", "--reason", "killed").exits(0) }
	leave()
	a.underWay(20)
	disk.freeze()
	f.until(a.logs("kept in memory until it answers"))
	a.underWay(100)
	time.AfterFunc(time.Second, func() { _ = disk.thaw() }) // the killed process can end only when the disk answers
	a.kill()
	a.start()
	a.drained()
	f.until(a.is("DECOMMISSIONED"))
	a.allMoved(a.manifest())
	b.onSocket().alone().serves(t, a.blocks)
	if held := f.held(); len(held) != 300 {
		t.Errorf("peers hold %d blocks, want 300", len(held))
	}
}

// A peer whose data_dir hangs cannot record what it takes. The leaving node soon sends to another peer, and its account is true.
func TestPeerWhoseDataDirHangs(t *testing.T) {
	file := diskImage(t)
	f := newFleet(t)
	a, b := f.agent("host-a", "drain: {max_bytes_per_second: 1MiB}"), f.agent("host-b")
	c := f.agent("host-c", probeEvery)
	disk := b.ownDisk(file)
	a.fill(300, 6<<20)
	a.shuffle(4, 512<<10)
	f.up()
	a.leavesThough("a peer hangs", disk.freeze)
	for range 3 {
		f.until(b.beatsAfter(time.Now()))
	}
	if err := disk.thaw(); err != nil {
		t.Fatal(err)
	}
	f.until(b.disk(b.data(), "HEALTHY"))
	a.kill()
	c.onSocket().serves(t, a.blocks)
	b.onSocket().serves(t, a.blocks)
}

// An agent that is told to stop ends even while the disk of its data_dir hangs.
func TestStopWhileDataDirHangs(t *testing.T) {
	file := diskImage(t)
	f := newFleet(t)
	a := f.agent("host-a", probeEvery)
	f.agent("host-b", probeEvery)
	disk := a.ownDisk(file)
	a.fill(10, 32<<10)
	f.up()
	disk.freeze()
	f.until(a.disk(a.data(), "IO_HANG"))
	a.verb("decommission", "--self", "--timeout", "5m", "--reason", "stopped").exits(0)
	f.until(a.is("DECOMMISSIONED"))
	a.onSocket().serves(t, a.blocks)
	a.verb("status").exits(0).tells("data_dir", "in memory")
	began := time.Now()
	a.stop()
	t.Logf("ended after %s", time.Since(began))
	if err := disk.thaw(); err != nil {
		t.Fatal(err)
	}
}
