package vault

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

func opened(t testing.TB) *Vault {
	t.Helper()
	v, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	return v
}

// reopened is the vault that the next start finds.
func reopened(t testing.TB, v *Vault) *Vault {
	t.Helper()
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(v.Dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	return again
}

func content(id string, size int) []byte { return bytes.Repeat([]byte(id), size/len(id)+1)[:size] }

// frames returns a block as it comes over the wire, and its record except for where it lies.
func frames(id string, size int) ([]byte, catalog.Record) {
	o := wire.Opening{ID: id, Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: inventory.BlockID(id).Name(), Bytes: int64(size)}}}
	b, sum := wire.AppendFrame(nil, wire.FrameOpen, 1, o.Append(nil)), wire.NewSummer()
	opening := len(b)
	sum.Member(int64(size))
	for c := range slices.Chunk(content(id, size), wire.ChunkBytes) {
		b = wire.AppendFrame(b, wire.FrameData, 1, c)
		sum.Chunk(crc32.Checksum(c, wire.Castagnoli))
	}
	total := sum.Total()
	b = wire.AppendFrame(b, wire.FrameClose, 1, total[:])
	return b, catalog.Record{Opening: o, From: "a", Landed: time.Now(), Sum: total, OpenLen: int64(opening), Length: int64(len(b))}
}

// put lands a block in the vault's first directory.
func put(t testing.TB, v *Vault, id string, size int) {
	t.Helper()
	putIn(t, v, v.Dir, id, size)
}

func putIn(t testing.TB, v *Vault, dir, id string, size int) {
	t.Helper()
	b, r := frames(id, size)
	s, err := v.Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	r.Segment, r.Offset = s.No, s.End
	if err := errors.Join(s.Append(b), s.w.Flush(), v.Sync(s, diskio.NewWell(nil))); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Catalog.Commit([]catalog.Change{{Record: &r}}, map[uint32]catalog.End{s.No: v.EndOf(s, s.End)}, nil); err != nil {
		t.Fatal(err)
	}
	v.Keep(s, s.End)
	v.Release(s, false)
}

// wantWhole reads back what put has landed.
func wantWhole(t testing.TB, v *Vault, id string, size int) {
	t.Helper()
	r, err := v.Catalog.Get(inventory.BlockID(id))
	if err != nil {
		t.Fatal(err)
	}
	c, err := v.member(r, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, content(id, size)) {
		t.Errorf("%s does not read as what came: %v", id, err)
	}
}

// While the files of a block are being named nobody may remove them, and the other way round.
func TestNamingAndRemovalTakeTurns(t *testing.T) {
	v := opened(t)
	first, second := v.ClaimNaming("x"), v.ClaimNaming("x")
	if !first || !second || v.ClaimRemoval("x") {
		t.Error("two may name it, and nobody remove it meanwhile")
	}
	v.Unclaim("x")
	if v.ClaimRemoval("x") {
		t.Error("one names it still")
	}
	v.Unclaim("x")
	if !v.ClaimRemoval("x") || v.ClaimNaming("x") || v.ClaimRemoval("x") {
		t.Error("it is being removed, by one")
	}
	v.Unclaim("x")
	if !v.ClaimNaming("x") {
		t.Error("nobody has it")
	}
}

// A segment is no stray in a directory that is another one by a link.
func TestSegmentOfADirectoryOfTwoNamesIsNoStray(t *testing.T) {
	v := opened(t)
	put(t, v, "cache/-/x", 1000)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(v.Dir, link); err != nil {
		t.Fatal(err)
	}
	if err := v.removeStray(1, link); err != nil {
		t.Error(err)
	}
	wantWhole(t, v, "cache/-/x", 1000)
}
