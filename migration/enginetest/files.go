// Package enginetest writes files as engines leave them, for the tests and benchmarks of those who carry them.
package enginetest

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Content is bytes that depend on the name alone.
func Content(name string, size int) []byte {
	sum := sha256.Sum256([]byte(name))
	b := make([]byte, size)
	rng := rand.NewChaCha8(sum)
	rng.Read(b)
	return b
}

// Write writes a file that is an hour old, and the directories on the way.
func Write(t testing.TB, p string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, b, 0o644); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	if err := os.Chtimes(p, old, old); err != nil {
		t.Fatal(err)
	}
}

// Plain writes a file of now.
func Plain(b testing.TB, p string, content []byte) {
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(p, content, 0o644); err != nil {
		b.Fatal(err)
	}
}

// MapOutput writes a well-formed map output into a block manager's directories, one for each local directory.
func MapOutput(t testing.TB, managers []string, shuffle, mapID int, partitions ...int) map[string][]byte {
	t.Helper()
	base := fmt.Sprintf("shuffle_%d_%d_0", shuffle, mapID)
	files := map[string][]byte{}
	var data, index, sums []byte
	index = binary.BigEndian.AppendUint64(index, 0)
	for i, n := range partitions {
		data = append(data, Content(fmt.Sprint(base, i), n)...)
		index = binary.BigEndian.AppendUint64(index, uint64(len(data)))
		sums = binary.BigEndian.AppendUint64(sums, 1)
	}
	if len(data) > 0 {
		files[base+".data"] = data
	}
	files[base+".index"], files[base+".checksum.ADLER32"] = index, sums
	for name, b := range files {
		dir, sub := sparkPlace(name, len(managers))
		Write(t, filepath.Join(managers[dir], sub, name), b)
	}
	return files
}

// Spot is where an executor with those directories keeps a file.
func Spot(managers []string, name string) string {
	dir, sub := sparkPlace(name, len(managers))
	return filepath.Join(managers[dir], sub, name)
}

// Index is the content of an index file: where each partition of a map output ends.
func Index(ends ...int) []byte {
	b := make([]byte, 8, 8+8*len(ends))
	for _, e := range ends {
		b = append(b, 0, 0, 0, 0, byte(e>>24), byte(e>>16), byte(e>>8), byte(e))
	}
	return b
}

// Outlast waits until what is written now can be told from what was written before.
func Outlast(t testing.TB) {
	t.Helper()
	select {
	case <-time.After(70 * time.Millisecond):
	case <-t.Context().Done():
	}
}

// sparkPlace is where Spark looks for a file (DiskBlockManager.getFile, with Java's String.hashCode): the number of the local directory,
// and the directory below it. It is written anew here so that the layout is compared with something.
func sparkPlace(name string, dirs int) (dir int, sub string) {
	var h int32
	for _, c := range []byte(name) {
		h = 31*h + int32(c)
	}
	if h = max(h, -h); h < 0 { // there is no positive counterpart of the least
		h = 0
	}
	return int(h) % dirs, fmt.Sprintf("%02x", int(h)/dirs%64)
}

// Apart returns map ids whose data and index Spark puts into different ones of three directories, the same two for all.
func Apart(count int) (ids []int) {
	var index, data int
	for m := 0; len(ids) < count; m++ {
		i, _ := sparkPlace(fmt.Sprintf("shuffle_0_%d_0.index", m), 3)
		d, _ := sparkPlace(fmt.Sprintf("shuffle_0_%d_0.data", m), 3)
		if i != d && (ids == nil || i == index && d == data) {
			ids, index, data = append(ids, m), i, d
		}
	}
	return ids
}

// Executor is the directories of one that nothing on disk ties to an application.
func Executor(dir string, x int) (managers []string) {
	for d := range 3 {
		managers = append(managers, filepath.Join(dir, fmt.Sprintf("d%d/e%d/blockmgr-%d%d", d, x, x, d)))
	}
	return managers
}
