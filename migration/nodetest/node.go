// Package nodetest is what tests of moving blocks share: what a machine keeps, disks that are as the test says, and a sender by hand, whose
// frames may be wrong or late. It is for tests alone, and knows neither a receiver nor a drain: each test brings its own.
//
// The files: node, landed, sender, disks, notes.
package nodetest

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Node is what one machine keeps, for tests: stores, a vault, a reader of both.
type Node struct {
	Name   string
	Dir    string
	Stores []*inventory.Store
	Vault  *vault.Vault
	ID     *certs.Identity
	Room   func(path string) int64
	Refuse string // why it takes nothing
	Disks  diskio.Disks
	More   []string // directories of the vault

	mu     sync.Mutex
	Landed []vault.Held
	Gone   []inventory.BlockID
	Why    string // the last of them are gone
}

// New makes one with empty stores, below a directory that goes with the test.
func New(t testing.TB, name string, stores ...inventory.StoreConfig) *Node {
	t.Helper()
	n := &Node{Name: name, Dir: t.TempDir(), Room: Plenty, ID: certs.Dev(certs.Name{Role: certs.RoleNode, Name: name})}
	for _, c := range stores {
		c.Paths = slices.Clone(c.Paths)
		for i, p := range c.Paths {
			c.Paths[i] = filepath.Join(n.Dir, p)
		}
		s, err := inventory.OpenStore(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		n.Stores = append(n.Stores, s)
	}
	n.Open(t)
	return n
}

// Open opens its vault.
func (n *Node) Open(t testing.TB) {
	t.Helper()
	v, err := vault.Open(filepath.Join(n.Dir, "vault"), n.More...)
	if err != nil {
		t.Fatal(err)
	}
	n.Vault = v
	t.Cleanup(func() { v.Close() })
}

// Reopen is what a restart of the agent does to the vault.
func (n *Node) Reopen(t testing.TB) {
	t.Helper()
	if err := n.Vault.Close(); err != nil {
		t.Fatal(err)
	}
	n.Open(t)
}

// NoteLanded is for a receiver to tell what landed.
func (n *Node) NoteLanded(h []vault.Held) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Landed = append(n.Landed, h...)
}

// NoteGone is for a receiver to tell what is gone.
func (n *Node) NoteGone(ids []inventory.BlockID, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Gone, n.Why = append(n.Gone, ids...), why
}

// LandedBlocks are those that a receiver told of.
func (n *Node) LandedBlocks() []vault.Held {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.Landed)
}

// Reader is one of what is here, that asks nobody else.
func (n *Node) Reader() *reading.Reader {
	return &reading.Reader{Node: n.Name, Stores: n.Stores, Vault: n.Vault, Disks: n.Disks, Log: slog.New(slog.DiscardHandler)}
}

// Plenty is room for all.
func Plenty(string) int64 { return 1 << 40 }

// RoomFor is room for so much.
func RoomFor(n int64) func(string) int64 { return func(string) int64 { return n } }

// Get reads a block as a client would, and returns the status and the body. A body that was cut short is status -1.
func Get(t testing.TB, h http.Handler, id, rng string) (int, []byte, http.Header) {
	t.Helper()
	header := http.Header{}
	if rng != "" {
		header.Set("Range", rng)
	}
	return Ask(t, h, http.MethodGet, "/blocks/"+id, header)
}

// Ask has a handler answer a request over HTTP.
func Ask(t testing.TB, h http.Handler, method, target string, header http.Header) (int, []byte, http.Header) {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := (&http.Client{Transport: srv.Client().Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return -1, body, resp.Header
	}
	return resp.StatusCode, body, resp.Header
}

// Get reads a block at a node.
func (n *Node) Get(t testing.TB, id, rng string) (int, []byte, http.Header) {
	t.Helper()
	return Get(t, n.Reader(), id, rng)
}

// Content reads a block's file without a server, so that it can be done in a bubble.
func (n *Node) Content(t testing.TB, id string) []byte {
	t.Helper()
	w := httptest.NewRecorder()
	n.Reader().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/blocks/"+id, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("read %s at %s: %d %s", id, n.Name, w.Code, w.Body)
	}
	return w.Body.Bytes()
}

// Stores of a cache, as a segment or in its place, and of a shuffle.
var (
	FilesStore = inventory.StoreConfig{Name: "cache", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Land: inventory.LandVault}
	PlaceStore = inventory.StoreConfig{Name: "cache", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Land: inventory.LandPlace}
	SparkStore = inventory.StoreConfig{Name: "spark", Kind: inventory.KindShuffle, Layout: inventory.LayoutSpark, Land: inventory.LandPlace}
)

// With is a store at these paths of a node.
func With(c inventory.StoreConfig, paths ...string) inventory.StoreConfig {
	c.Paths = paths
	return c
}

// SegmentPath is the file of a segment.
func (n *Node) SegmentPath(no uint32) string {
	dir, _ := n.Vault.Home(no)
	return vault.SegmentFile(dir, no)
}

// Has reports whether a node can serve a block by itself.
func (n *Node) Has(id inventory.BlockID) bool {
	w := httptest.NewRecorder()
	n.Reader().ServeHTTP(w, httptest.NewRequest(http.MethodHead, (&url.URL{Path: "/blocks/" + string(id)}).String(), nil))
	return w.Code == http.StatusOK || w.Code == http.StatusMultipleChoices
}

// LandedFile opens a block of one file that landed.
func (n *Node) LandedFile(id inventory.BlockID) (io.ReadSeekCloser, error) {
	r, err := n.Vault.Catalog.Get(id)
	if err != nil {
		return nil, err
	}
	return n.Vault.OpenLanded(inventory.StoreOf(n.Stores, id), r, 0, 0)
}

// BlockFrames is a block of one member of at most a chunk, as a sender would send it.
func BlockFrames(transfer uint32, id string, content []byte) []byte {
	return OpeningFrames(transfer, wire.Opening{
		ID: id, Kind: inventory.KindCache, Layout: inventory.LayoutFiles,
		Members: []wire.MemberSize{{Name: inventory.BlockID(id).Name(), Bytes: int64(len(content))}},
	}, content)
}

// OpeningFrames is a block that is opened so, as a sender would send it.
func OpeningFrames(transfer uint32, o wire.Opening, content []byte) []byte {
	b := wire.AppendFrame(nil, wire.FrameOpen, transfer, o.Append(nil))
	s := wire.NewSummer()
	s.Member(int64(len(content)))
	for c := range slices.Chunk(content, wire.ChunkBytes) {
		b = wire.AppendFrame(b, wire.FrameData, transfer, c)
		s.Chunk(crc32.Checksum(c, wire.Castagnoli))
	}
	sum := s.Total()
	return wire.AppendFrame(b, wire.FrameClose, transfer, sum[:])
}

// Within is a context that ends after so long, or with the test.
func Within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// SegmentBytes is how long the segments are that a node has.
func (n *Node) SegmentBytes(t testing.TB) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(n.Dir, "vault", "segments"), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		bytes += info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// Flip changes one bit of the content, in whichever file below dir has it.
func Flip(t testing.TB, dir string, content []byte, at int) {
	t.Helper()
	found := false
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		i := bytes.Index(b, content)
		if i < 0 {
			return nil
		}
		found = true
		b[i+at] ^= 1
		info, err := e.Info()
		if err != nil {
			return err
		}
		return errors.Join(os.WriteFile(p, b, 0o600), os.Chtimes(p, info.ModTime(), info.ModTime()))
	})
	if err != nil || !found {
		t.Fatalf("no file below %s has such content (%v)", dir, err)
	}
}

// OnDisks gives the vault these directories besides its own, which takes nothing from then on.
func (n *Node) OnDisks(t testing.TB, vaultDirs ...string) *Disks {
	t.Helper()
	if err := n.Vault.Close(); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, d := range vaultDirs {
		n.More = append(n.More, filepath.Join(n.Dir, d))
	}
	paths = append(paths, n.More...)
	for _, s := range n.Stores {
		paths = append(paths, s.Paths...)
	}
	f := NewDisks(1<<30, paths...)
	n.Disks, n.Room = f, func(p string) int64 {
		f.mu.Lock()
		defer f.mu.Unlock()
		return max(0, f.Room[p]-f.Reserved[p])
	}
	n.Open(t)
	return f
}

// SegmentsIn are the segments in a directory of a vault.
func SegmentsIn(t testing.TB, dir string) (names []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "segments", "seg-*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// RoomOfVault is the room of a node whose vault is on a small disk, and whose stores are on large ones.
func RoomOfVault(bytes int64) func(string) int64 {
	return func(p string) int64 {
		if strings.HasSuffix(p, "/vault") {
			return bytes
		}
		return 1 << 40
	}
}
