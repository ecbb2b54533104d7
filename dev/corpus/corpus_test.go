package corpus

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash/adler32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

const mib = 1 << 20

// scan returns the blocks that a drain of the directories would carry. It checks that the scan leaves everything else
// alone, and how many files that is.
func scan(t *testing.T, cfg inventory.StoreConfig, left int) map[inventory.BlockID]inventory.Block {
	t.Helper()
	s, err := inventory.OpenStore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found, skipped := map[inventory.BlockID]inventory.Block{}, 0
	for it, err := range s.Scan(context.Background()) {
		switch {
		case err != nil:
			t.Fatalf("scan: %v", err)
		case it.Skip != "":
			skipped++
		default:
			found[it.ID] = it.Block
		}
	}
	if skipped != left {
		t.Errorf("scan left %d files alone, want %d", skipped, left)
	}
	return found
}

// compare compares the blocks of a scan with the account of what was made.
func compare(t *testing.T, found map[inventory.BlockID]inventory.Block, c Corpus, store string) {
	t.Helper()
	want := map[inventory.BlockID]map[string]int64{}
	for _, f := range c.Files {
		if _, err := inventory.ParseBlockID(string(f.ID(store))); err != nil {
			t.Errorf("id: %v", err)
		}
		b := f.BlockID(store)
		if want[b] == nil {
			want[b] = map[string]int64{}
		}
		want[b][f.Name] = f.Bytes
	}
	if len(found) != len(want) || c.Blocks != len(want) {
		t.Errorf("scan found %d blocks, the account says %d and lists %d", len(found), c.Blocks, len(want))
	}
	for id, b := range found {
		got := map[string]int64{}
		for _, m := range b.Members {
			got[m.Name] = m.Bytes
		}
		if !maps.Equal(got, want[id]) {
			t.Errorf("block %s: scan found %v, the account says %v", id, got, want[id])
		}
	}
}

// read returns every file below dir by its base name.
func read(t *testing.T, dirs ...string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			b, err := os.ReadFile(p)
			all[e.Name()] = b
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func verify(t *testing.T, c Corpus, onDisk map[string][]byte) {
	t.Helper()
	var bytes int64
	sums := map[[32]byte]string{}
	for _, f := range c.Files {
		b := onDisk[filepath.Base(f.Name)]
		bytes += f.Bytes
		if int64(len(b)) != f.Bytes || sha256.Sum256(b) != f.SHA256 {
			t.Errorf("%s: the file on disk is not the one in the account", f.Name)
		}
		if other, ok := sums[f.SHA256]; ok && f.Bytes > 64 && !strings.Contains(f.Name, ".checksum.") {
			t.Errorf("%s and %s have the same contents", f.Name, other)
		}
		sums[f.SHA256] = f.Name
	}
	if bytes != c.Bytes {
		t.Errorf("the files have %d bytes, the account says %d", bytes, c.Bytes)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	c, err := Files(dir, 200, 8*mib, 7)
	if err != nil {
		t.Fatal(err)
	}
	if c.Bytes != 8*mib {
		t.Errorf("made %d bytes, want %d", c.Bytes, 8*mib)
	}
	found := scan(t, inventory.StoreConfig{Name: "cache", Kind: "cache", Layout: "files", Paths: []string{dir}}, c.Left)
	compare(t, found, c, "cache")
	verify(t, c, read(t, dir))
	sizes := []int64{}
	for _, f := range c.Files {
		sizes = append(sizes, f.Bytes)
	}
	slices.Sort(sizes)
	if sizes[0] < 1 || sizes[len(sizes)-1] < 4*sizes[len(sizes)/2] {
		t.Errorf("sizes from %d over %d to %d: want them spread", sizes[0], sizes[len(sizes)/2], sizes[len(sizes)-1])
	}
}

func TestEven(t *testing.T) {
	dir := t.TempDir()
	c, err := Even(dir, 10, 3*mib+1, 7)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range c.Files {
		if f.Bytes != 3*mib+1 {
			t.Errorf("%s has %d bytes, want %d", f.Name, f.Bytes, 3*mib+1)
		}
	}
	compare(t, scan(t, inventory.StoreConfig{Name: "cache", Kind: "cache", Layout: "files", Paths: []string{dir}}, 0), c, "cache")
	verify(t, c, read(t, dir))
}

func TestSkewed(t *testing.T) {
	dir := t.TempDir()
	c, err := Skewed(dir, 300, 2000, 9000, 1)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, c, read(t, dir))
	below, largest := 0, int64(0)
	for _, f := range c.Files {
		largest = max(largest, f.Bytes)
		if f.Bytes < 2000 {
			below++
		}
	}
	if largest != 9000 || below < 120 || below > 180 {
		t.Errorf("the largest of 300 has %d bytes and %d are below the median, want 9000 and about 150", largest, below)
	}
}

func TestSpark(t *testing.T) {
	for _, dirs := range []int{1, 3} {
		var paths []string
		for range dirs {
			paths = append(paths, t.TempDir())
		}
		c, err := Spark(paths, 40, 4*mib, 16, 7)
		if err != nil {
			t.Fatal(err)
		}
		if c.Bytes != 4*mib {
			t.Errorf("made %d bytes, want %d", c.Bytes, 4*mib)
		}
		found := scan(t, inventory.StoreConfig{Name: "spark", Kind: "shuffle", Layout: "spark", Paths: paths}, c.Left)
		compare(t, found, c, "spark")
		onDisk := read(t, paths...)
		verify(t, c, onDisk)
		checksums(t, c, onDisk, 16)
	}
}

// checksums reads the map outputs as an engine would.
func checksums(t *testing.T, c Corpus, onDisk map[string][]byte, partitions int) {
	t.Helper()
	empty, outputs := 0, 0
	for _, f := range c.Files {
		base, isIndex := strings.CutSuffix(f.Name, ".index")
		if !isIndex {
			continue
		}
		index, data, sums := onDisk[f.Name], onDisk[base+".data"], onDisk[base+".checksum.ADLER32"]
		at := func(b []byte, i int) int64 { return int64(binary.BigEndian.Uint64(b[8*i:])) }
		if len(index) != 8*(partitions+1) || at(index, 0) != 0 || at(index, partitions) != int64(len(data)) {
			t.Errorf("%s: its offsets are not those of %d partitions and %d bytes", f.Name, partitions, len(data))
			continue
		}
		if len(data) == 0 {
			continue
		}
		outputs++
		for i := range partitions {
			part := data[at(index, i):at(index, i+1)]
			if got, want := at(sums, i), int64(adler32.Checksum(part)); got != want {
				t.Errorf("%s: checksum of partition %d is %d, want %d", base, i, got, want)
			}
			if len(part) == 0 {
				empty++
			}
		}
	}
	if outputs != 39 || empty == 0 {
		t.Errorf("%d outputs with data and %d empty partitions: want 39 and some", outputs, empty)
	}
}

func TestSeedDecides(t *testing.T) {
	fill := func(seed uint64) (Corpus, map[string][]byte) {
		cache, spark := t.TempDir(), t.TempDir()
		c, err := Files(cache, 20, mib, seed)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Spark([]string{spark}, 5, mib, 4, seed)
		if err != nil {
			t.Fatal(err)
		}
		c.Files = append(c.Files, s.Files...)
		return c, read(t, cache, spark)
	}
	one, oneDisk := fill(1)
	again, againDisk := fill(1)
	other, _ := fill(2)
	if !slices.Equal(one.Files, again.Files) {
		t.Error("the same seed made other files")
	}
	if !maps.EqualFunc(oneDisk, againDisk, slices.Equal) {
		t.Error("the same seed left other files on disk")
	}
	if slices.Equal(one.Files, other.Files) {
		t.Error("another seed made the same files")
	}
}

func TestSmallest(t *testing.T) {
	for n := 1; n < 6; n++ {
		dir := t.TempDir()
		c, err := Spark([]string{dir}, n, int64(n), 3, 1)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, scan(t, inventory.StoreConfig{Name: "spark", Kind: "shuffle", Layout: "spark", Paths: []string{dir}}, c.Left), c, "spark")
	}
	if _, err := Files(t.TempDir(), 0, 10, 1); err == nil {
		t.Error("made no files without an error")
	}
	if _, err := Files(t.TempDir(), 10, 9, 1); err == nil {
		t.Error("made ten files of nine bytes")
	}
	if _, err := Spark(nil, 1, 10, 1, 1); err == nil {
		t.Error("made map outputs nowhere")
	}
}

func BenchmarkFiles(b *testing.B) {
	b.SetBytes(256 * mib)
	for b.Loop() {
		if _, err := Files(filepath.Join(b.TempDir(), "c"), 64, 256*mib, 1); err != nil {
			b.Fatal(err)
		}
	}
}
