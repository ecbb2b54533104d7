package receiver

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/disks/smalldisk"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// thinDisk is a file system whose device promises more than it has: it takes no new blocks between drained and mended. A
// writer learns of that only when the kernel writes to the device, if at all.
func thinDisk(t *testing.T) (dir string, drained, mended func()) {
	t.Helper()
	back := smalldisk.New(t, 64<<20)
	image := filepath.Join(back, "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 512<<20)); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Skipf("no disk that lies: %s: %v: %s", name, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("mkfs.ext4", "-q", "-O", "^has_journal", "-E", "lazy_itable_init=0,nodiscard", image)
	loop := run("losetup", "--find", "--show", image)
	t.Cleanup(func() { _ = exec.Command("losetup", "-d", loop).Run() })
	dir = t.TempDir()
	if err := unix.Mount(loop, dir, "ext4", 0, "errors=continue"); err != nil {
		t.Skip("no disk that lies: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir, func() { smalldisk.Fill(t, back) }, func() {
		if err := os.Remove(filepath.Join(back, "full")); err != nil {
			t.Fatal(err)
		}
	}
}

// onlyOnDisk has the next read of a file ask the disk.
func onlyOnDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	diskio.DropCached(f, 0, 1<<40)
}

// The disk refuses some of a segment's bytes, and is well again a moment later. Writing behind gets that error first. The sync
// after it must get it, too: the blocks that wait for it lie in the same segment.
func TestSyncHearsWhatWritingBehindHasHeard(t *testing.T) {
	const blocks = 20
	dir, drained, mended := thinDisk(t)
	n := newNode(t, "b")
	n.Vault.Close()
	n.More = []string{filepath.Join(dir, "vault")}
	n.Disks = newFakeDisks(1<<30, n.More[0])
	n.Open(t)
	refused, waits, sync := make(chan struct{}), atomic.Bool{}, n.Vault.Flush
	n.Vault.Flush = func(f *os.File) error {
		if waits.Load() {
			<-refused
		}
		return sync(f)
	}
	ctx, stop := n.receiving(t)
	s := n.stream(t, ctx)
	s.Send(blockFrames(blocks, "cache/-/warm", contentOf("warm", 1000)))
	s.WantReceipt() // the segment has its inode
	unix.Sync()
	waits.Store(true)
	id := func(i int) string { return fmt.Sprint("cache/-/x", i) }
	frames := func(i int) []byte { return blockFrames(uint32(i), id(i), contentOf(id(i), 1<<20)) }
	drained()
	begun := diskio.WriteBehindBytes>>20 + 2 // one more, for the last bytes may not have been looked at yet
	for i := range begun {
		s.Send(frames(i))
	}
	unix.Sync() // the disk has answered, and nobody has asked yet
	mended()
	go func() {
		for i := begun; i < blocks; i++ {
			if _, err := s.Conn.Write(frames(i)); err != nil {
				return // the stream may be given up
			}
		}
	}()
	said := map[uint32]wire.VerdictCode{}
	for len(said) < blocks {
		f, err := s.Next()
		if err != nil {
			break
		}
		verdicts, err := wire.ParseVerdicts(f.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if len(said) == 0 { // the block amid which writing behind got the error
			close(refused)
		}
		for _, v := range verdicts {
			said[v.Transfer] = v.Code
		}
	}
	s.Conn.Close()
	stop()
	for i := range blocks {
		if code, ok := said[uint32(i)]; !ok || code != wire.VerdictDurable {
			continue
		}
		r, err := n.Vault.Catalog.Get(inventory.BlockID(id(i)))
		if err != nil {
			t.Fatal(err)
		}
		onlyOnDisk(t, n.SegmentPath(r.Segment))
		if status, got, _ := n.Get(t, id(i), ""); status != 200 || !bytes.Equal(got, contentOf(id(i), 1<<20)) {
			t.Errorf("%s has a receipt, and the disk does not have it: status %d", id(i), status)
		}
	}
}

// Many files are synced by syncing their file system, which reports a failed write once. If another program, or another store on
// the same disk, got that report, the files themselves are asked: no file gets a name whose bytes are not on the disk.
func TestFilesTellWhatTheirFileSystemHasToldAnother(t *testing.T) {
	dir, drained, mended := thinDisk(t)
	n := newNode(t, "b")
	s, err := inventory.OpenStore(with(placeStore, filepath.Join(dir, "cache")))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var blocks []*landed
	land := func(id string) {
		content := contentOf(id, wire.ChunkBytes)
		l, err := landInPlace(s, wire.Opening{ID: id, Members: []wire.MemberSize{{Name: inventory.BlockID(id).Name(), Bytes: wire.ChunkBytes}}}, []int{0}, n.Vault.Catalog, new(diskio.Work))
		if err == nil {
			err = l.data(0, wire.Frame{Sum: crc32.Checksum(content, wire.Castagnoli), Payload: content})
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.finish(wire.Frame{}, catalog.Record{Opening: l.opening})
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, b)
	}
	land("cache/-/warm")
	unix.Sync() // the directories have their places
	for i := range syncAtOnce + 4 {
		land(fmt.Sprint("cache/-/x", i))
	}
	drained()
	other, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Syncfs(int(other.Fd())); err == nil {
		t.Skip("the disk refused nothing")
	}
	mended()
	publish(s, blocks, nil, n.Vault.Catalog, diskio.OrWell(nil), new(diskio.Work))
	for _, b := range blocks {
		if b.fault != nil {
			continue
		}
		path := filepath.Join(s.Paths[0], inventory.BlockID(b.ID).Name())
		onlyOnDisk(t, path)
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, contentOf(b.ID, wire.ChunkBytes)) {
			t.Errorf("%s has its name, and the disk does not have it: %v", b.ID, err)
		}
	}
}
