package migration

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// source is this node's own disks as a drain reads them: its stores, and the vault with what landed here from others.
type source struct {
	node    string   // this one
	only    []string // DrainConfig.Only
	all     []*inventory.Store
	stores  map[string]*inventory.Store // the same by name
	vault   *vault.Vault
	disks   diskio.Disks
	history *history     // is told of blocks that were only touched
	wary    bool         // DrainConfig.Wary
	held    atomic.Int32 // questions to the catalog that were left behind and have not come back
}

func newSource(cfg DrainConfig) *source {
	return &source{node: cfg.Node, only: cfg.Only, all: cfg.Stores, stores: inventory.ByName(cfg.Stores), vault: cfg.Vault, disks: diskio.OrWell(cfg.Disks), wary: cfg.Wary}
}

// localError is trouble with a block's own files, not with the peer.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }

// same returns the error that StillSame returned for a member, but nil for a block that was only touched. It remembers such a
// block: the next look will meet it as one that changed, and must not take it for news.
func (src *source) same(b inventory.Block, err error) error {
	if err == inventory.ErrTouched {
		src.history.touched(b)
		return nil
	}
	return err
}

// dirOf is the directory that a member lies in, of those that where returns.
func (src *source) dirOf(b inventory.Block, i int) *string {
	m := &b.Members[i]
	if m.Root == inventory.InVault {
		return &m.Path
	}
	return &src.stores[b.ID.Store()].Paths[m.Root]
}

// openMember opens a member where it lies now: in its store, or in this node's vault.
func (src *source) openMember(b inventory.Block, i int) (io.ReadCloser, error) {
	m := b.Members[i]
	s := src.stores[b.ID.Store()]
	if m.Root == inventory.InVault {
		r, err := src.landed(b.ID)
		if err == nil && !r.Is(m, i) {
			err = inventory.ErrChanged // another version has landed since
		}
		if err != nil {
			return nil, err
		}
		return src.vault.OpenLanded(s, r, i, diskio.Window)
	}
	if src.origin(&b) != "" {
		// If it came from a peer its checksums are known, so what is carried on is what came.
		r, err := src.landed(b.ID)
		if j := slices.Index(r.Members, wire.MemberSize{Name: m.Name, Bytes: m.Bytes}); err == nil && r.Segment == 0 && j >= 0 {
			if c, err := src.vault.OpenLanded(s, r, j, diskio.Window); !errors.Is(err, fs.ErrNotExist) {
				return c, err
			}
		}
	}
	f, err := s.OpenBeneath(m)
	if err != nil || m.Bytes <= wire.ChunkBytes { // what is read in one piece is looked at once, afterwards
		return f, err
	}
	if err := src.same(b, inventory.StillSame(f, m)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// readWhole reads a member that is as long as p. Only afterwards does it look whether the file is what was planned and, if the block came
// from a peer, whether the bytes are those that came.
func (src *source) readWhole(b inventory.Block, i int, p []byte, files *inventory.FileReader, segments *vault.Reader) error {
	m := b.Members[i]
	if m.Root != inventory.InVault {
		err := src.same(b, files.Read(src.stores[b.ID.Store()], m, p))
		if err == nil && src.origin(&b) != "" {
			err = src.asItCame(b.ID, m, p)
		}
		return err
	}
	if is, err := segments.Read(src.vault, b, i, p); is {
		return err
	}
	r, err := src.openMember(b, i) // it has become files
	if err != nil {
		return err
	}
	defer r.Close() // it was only read
	return files.Fill(r, p)
}

// asItCame verifies what was read of a small file that a block landed as. A file that lies there now may be another: then it is its
// engine's, and nothing is known to verify it by.
func (src *source) asItCame(id inventory.BlockID, m inventory.Member, p []byte) error {
	r, err := src.landed(id)
	j := slices.Index(r.Members, wire.MemberSize{Name: m.Name, Bytes: m.Bytes})
	if err != nil || r.Segment != 0 || j < 0 || j >= len(r.Placed) {
		return nil
	}
	if at := r.Placed[j]; at.Root == m.Root && at.Path == m.Path && at.ModTime == m.ModTime.UnixNano() && !(vault.PlacedChunks{Sums: at.Chunks}).Has(0, p) {
		return fmt.Errorf("%s: %w", m.Path, wire.ErrCorrupt)
	}
	return nil
}

// find looks up a planned block anew, in the store or vault where it was found.
func (src *source) find(b inventory.Block) (inventory.Block, error) {
	if b.Members[0].Root == inventory.InVault {
		now, err := src.vault.Find(b.ID)
		if s := src.stores[b.ID.Store()]; errors.Is(err, fs.ErrNotExist) && s != nil && s.Land == inventory.LandPlace {
			return s.Find(b.ID) // it may have become files
		}
		return now, err
	}
	return src.stores[b.ID.Store()].Find(b.ID)
}

// origin is the node that a block was born on, "" for one of this node's own; a block that landed here keeps its origin however
// often it moves on. It is looked up once and noted in the block, unless a catalog that hangs does not say.
func (src *source) origin(b *inventory.Block) string {
	if !b.Traced {
		b.Origin, b.Traced = src.trace(b)
	}
	return b.Origin
}

// landed returns what the catalog has of a block. On a disk that hangs, a read of the catalog does not come back, and nothing ends it. So where
// that may be, the question is left behind, and until it is back no other is asked: the files of the stores are met, and sent, without it.
func (src *source) landed(id inventory.BlockID) (catalog.Record, error) {
	if !src.wary && src.disks.Readable(src.vault.Dir) { // a question that may be left behind takes five times as long
		return src.vault.Catalog.Get(id)
	}
	if src.held.Load() > 0 {
		return catalog.Record{}, diskio.Silence(src.vault.Dir)
	}
	var said catalog.Record
	var fault error
	answered := await.Beside(func() { said, fault = src.vault.Catalog.Get(id) })
	late := time.NewTimer(diskio.Suspect)
	defer late.Stop()
	select {
	case <-answered:
		return said, fault
	case <-late.C:
		src.held.Add(1)
		go func() { <-answered; src.held.Add(-1) }()
		return catalog.Record{}, diskio.Silence(src.vault.Dir)
	}
}

func (src *source) trace(b *inventory.Block) (origin string, known bool) {
	if s := src.stores[b.ID.Store()]; b.Members[0].Root != inventory.InVault && (s == nil || s.Land != inventory.LandPlace || src.vault.Count().Blocks == 0) {
		return "", true
	}
	r, err := src.landed(b.ID)
	if err != nil || b.Members[0].Root != inventory.InVault && r.Segment != 0 && len(r.Placed) == 0 {
		return "", !diskio.IsSilent(err)
	}
	return r.Origin, true
}

// where returns the directories that a block lies in; nobody may change what it returns.
func (src *source) where(b inventory.Block) (dirs []string) {
	if len(b.Members) == 1 && b.Members[0].Root != inventory.InVault { // as nearly all are
		return src.stores[b.ID.Store()].Paths[b.Members[0].Root:][:1:1]
	}
	for i := range b.Members {
		if dir := *src.dirOf(b, i); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// concerns reports whether the drain is about a block.
func (src *source) concerns(b inventory.Block) bool {
	return len(src.only) == 0 || src.concernsAny(src.where(b))
}

func (src *source) concernsAny(dirs []string) bool {
	if len(src.only) == 0 {
		return true
	}
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return slices.ContainsFunc(src.only, func(only string) bool { return diskio.Below(dir, only) })
	})
}

// dirs returns all directories that the drain reads from.
func (src *source) dirs() []string {
	dirs := src.vault.Paths()
	for _, s := range src.all {
		dirs = append(dirs, s.Paths...)
	}
	return dirs
}

// findAgain looks a block up by its id: in its store, else in the vault.
func (src *source) findAgain(id inventory.BlockID) (inventory.Block, error) {
	if s := src.stores[id.Store()]; s != nil {
		if b, err := s.Find(id); !errors.Is(err, fs.ErrNotExist) {
			return b, err
		}
	}
	return src.vault.Find(id)
}

// homeOf returns the other node that a block came from; "": it is this node's own, or came back.
func (src *source) homeOf(b *inventory.Block) string {
	if node := src.origin(b); node != src.node {
		return node
	}
	return ""
}

// local returns the localError for trouble with a block's own files, and tells of it if the disk is at fault.
func (src *source) local(dir string, err error) error {
	if diskio.IsFault(err) {
		src.disks.Fault(dir, err)
	}
	return &localError{err}
}

// becameAnother reports whether there is another version here than the line says was moved. A map output that comes home has one time
// for all of its files, the newest that they had: its version is another, and its tag the same.
func (src *source) becameAnother(e manifest.Entry) bool {
	now, err := src.findAgain(inventory.BlockID(e.ID))
	v, known := e.OfVersion()
	return err == nil && known && manifest.VersionOf(now) != v && now.Tag() != e.Tag()
}
