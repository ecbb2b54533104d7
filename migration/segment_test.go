package migration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/receiver"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// While a large block comes, what the disk has of it leaves the page cache. Small blocks stay there: those that become
// files are read again at once. Both read back as they were.
func TestLargeBlocksLeaveThePageCache(t *testing.T) {
	const all = 4 * diskio.WriteBehindBytes
	for _, size := range []int{all, receiver.PackedBytes} {
		a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b", with(filesStore, "cache"))
		for i := range all / size {
			write(t, filepath.Join(a.Dir, "cache", fmt.Sprint(i)), contentOf(fmt.Sprint(i), size))
		}
		trip := newTrip(t, a, b)
		trip.cfg.Connections = 1
		if sum, entries := trip.run(t.Context()); int(sum.Moved.Blocks) != all/size {
			t.Fatalf("got %+v, want %d blocks moved\n%v", sum, all/size, entries[:1])
		}
		switch cached := inPageCache(t, vault.SegmentFile(b.Vault.Dir, 1), diskio.WriteBehindBytes); {
		case size > receiver.PackedBytes && cached > 0.2:
			t.Errorf("%.0f %% of what the disk has of a block of %d bytes is in the page cache", 100*cached, size)
		case size <= receiver.PackedBytes && cached < 0.5:
			t.Errorf("%.0f %% of what the disk has of blocks of %d bytes is in the page cache: they are needed again at once", 100*cached, size)
		}
		if got := b.Content(t, "cache/-/0"); !bytes.Equal(got, contentOf("0", size)) {
			t.Errorf("a block of %d bytes came back with other bytes", size)
		}
	}
}

// inPageCache is how much of the beginning of a file the kernel has in memory: 1 is all.
func inPageCache(t *testing.T, file string, bytes int) float64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	look := func() float64 { return float64(cachedBytes(t, f, bytes)) / float64(bytes) }
	was := look()
	if diskio.DropCached(f, 0, int64(bytes)); look() > 0.2 {
		t.Skipf("%s lies in memory only", file)
	}
	return was
}
