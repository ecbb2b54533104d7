package inventory

import (
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/enginetest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// What engines leave on disk.
var (
	contentOf, write, plainFile   = enginetest.Content, enginetest.Write, enginetest.Plain
	writeMapOutput, spot, indexOf = enginetest.MapOutput, enginetest.Spot, enginetest.Index
	apart, executor               = enginetest.Apart, enginetest.Executor
	outlast, cpuTime              = enginetest.Outlast, enginetest.CPUTime
)

var (
	filesStore = StoreConfig{Name: "cache", Kind: KindCache, Layout: LayoutFiles, Land: LandVault}
	sparkStore = StoreConfig{Name: "spark", Kind: KindShuffle, Layout: LayoutSpark, Land: LandPlace}
)

func with(c StoreConfig, paths ...string) StoreConfig {
	c.Paths = paths
	return c
}

// box is as much of a node as tests of stores need.
type box struct {
	dir    string
	stores []*Store
	disks  diskio.Disks
}

func newBox(t testing.TB, stores ...StoreConfig) *box {
	t.Helper()
	n := &box{dir: t.TempDir()}
	for _, c := range stores {
		c.Paths = slices.Clone(c.Paths)
		for i, p := range c.Paths {
			c.Paths[i] = filepath.Join(n.dir, p)
		}
		s, err := OpenStore(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		n.stores = append(n.stores, s)
	}
	return n
}

// indexBox makes an index of its stores in real time, for the kernel's time stamps know no other.
func indexBox(t testing.TB, n *box) *Index {
	t.Helper()
	ix := NewIndex(IndexConfig{Dir: filepath.Join(n.dir, "index"), Stores: n.stores, Disks: n.disks, Log: slog.New(slog.DiscardHandler)})
	if err := os.MkdirAll(ix.cfg.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	outlast(t)
	ix.Look(t.Context())
	outlast(t)
	return ix
}

// silentDisks are well, except for those that do not answer.
type silentDisks struct {
	diskio.Disks
	mu   sync.Mutex
	hung map[string]bool
}

func (h *silentDisks) hang(dir string, is bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hung == nil {
		h.hung = map[string]bool{}
	}
	h.hung[dir] = is
}

func (h *silentDisks) Readable(dir string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.hung[dir]
}
