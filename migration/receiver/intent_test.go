package receiver

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// commitUnderWay is a map output, on two disks, that a node has staged and not yet committed.
type commitUnderWay struct {
	*node
	store *inventory.Store
	block *landed
	c     *committer
}

// intend writes the intent, as the commit does first.
func (u *commitUnderWay) intend() *intent {
	return intend(u.store, []*landed{u.block}, new(diskio.Work))
}

// name gives all files their names.
func (u *commitUnderWay) name() {
	publish(u.store, []*landed{u.block}, u.intend(), u.Vault.Catalog, diskio.OrWell(nil), new(diskio.Work))
}

// A crash comes after each step of the commit of a map output. Either it is there whole and on record, or none of its files has a name and
// it can come again. What an engine put there since stays.
func TestCommitKilledAtEachStep(t *testing.T) {
	for _, row := range []struct {
		step  string
		upTo  func(t *testing.T, u *commitUnderWay)
		there bool // on record after the crash
		told  bool // as landed, after the crash
		own   bool // an engine's file stands there
	}{
		{step: "staged", upTo: func(*testing.T, *commitUnderWay) {}},
		{step: "written down", upTo: func(_ *testing.T, u *commitUnderWay) { u.intend() }},
		{step: "written down in part", upTo: func(t *testing.T, u *commitUnderWay) {
			in := u.intend()
			if err := os.Truncate(filepath.Join(u.store.Paths[in.root], in.path), 40); err != nil {
				t.Fatal(err)
			}
		}},
		{step: "data named", upTo: func(t *testing.T, u *commitUnderWay) {
			u.intend()
			if err := giveName(u.store, &u.block.files[0], u.block, u.Vault.Catalog); err != nil {
				t.Fatal(err)
			}
		}},
		{step: "named", there: true, told: true, upTo: func(_ *testing.T, u *commitUnderWay) { u.name() }},
		{step: "recorded", there: true, upTo: func(_ *testing.T, u *commitUnderWay) {
			u.c.durable([]*landed{u.block}, new(diskio.Work))
		}},
		{step: "not kept", upTo: func(_ *testing.T, u *commitUnderWay) {
			u.block.disowned = errStopping
			u.c.durable([]*landed{u.block}, new(diskio.Work))
		}},
		{step: "replaced by the engine", own: true, upTo: func(t *testing.T, u *commitUnderWay) {
			u.name()
			for _, f := range u.block.files {
				name, at := filepath.Join(u.store.Paths[f.root], f.to), time.Unix(0, u.block.ModTime)
				write(t, name+".new", []byte("the engine's own"))
				if err := errors.Join(os.Chtimes(name+".new", at, at), os.Rename(name+".new", name)); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		for _, older := range []bool{false, true} {
			t.Run(row.step+map[bool]string{true: ", over an older version"}[older], func(t *testing.T) {
				n := newNode(t, "b", with(sparkStore, "s0", "s1"))
				o := acrossDisks(0, 1, wire.ChunkBytes)
				o.Origin = "a"
				if older {
					wantDurable(t, landAll(t, n, membersFrames(1, o)))
				}
				o.ModTime, o.Members[0].Bytes = 1, 2*PackedBytes
				u := stageCommit(t, n, o)
				row.upTo(t, u)
				if u.block.fault != nil && !errors.Is(u.block.fault, errStopping) {
					t.Fatal(u.block.fault)
				}
				n.Landed = nil
				n.Reopen(t)
				n.receive(t)
				r, err := n.Vault.Catalog.Get(inventory.BlockID(o.ID))
				if there := err == nil && r.ModTime == 1 && r.Segment == 0; there != row.there {
					t.Fatalf("on record: %t, %v, want %t", there, err, row.there)
				}
				if told := len(n.LandedBlocks()) == 1; told != row.told {
					t.Errorf("%+v was told to have landed, want %t", n.LandedBlocks(), row.told)
				}
				for _, dir := range n.Stores[0].Paths {
					left, err := os.ReadDir(filepath.Join(dir, inventory.StagingDir))
					if err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
						t.Errorf("%s has %v still, %v", dir, left, err)
					}
				}
				if row.own {
					for _, f := range u.block.files {
						if got, err := os.ReadFile(filepath.Join(u.store.Paths[f.root], f.to)); string(got) != "the engine's own" {
							t.Errorf("%s: %q, %v", f.to, got, err)
						}
					}
					return
				}
				n.receiver.removal.DropGhosts(t.Context())
				wantDurable(t, landAll(t, n, membersFrames(1, o)))
				if r, err := n.Vault.Catalog.Get(inventory.BlockID(o.ID)); err != nil || r.Segment != 0 {
					t.Errorf("it came again and is not in its place: segment %d, %v", r.Segment, err)
				}
				for _, m := range o.Members {
					want := bytes.Repeat(contentOf(m.Name, wire.ChunkBytes), int(m.Bytes/wire.ChunkBytes))
					if got := n.Content(t, string(inventory.BlockID(o.ID).Sibling(m.Name))); !bytes.Equal(got, want) {
						t.Errorf("%s: %d other bytes are read", m.Name, len(got))
					}
				}
			})
		}
	}
}

func stageCommit(t *testing.T, n *node, o wire.Opening) *commitUnderWay {
	t.Helper()
	s := n.Stores[0]
	staged, err := landInPlace(s, o, []int{0, 1}, n.Vault.Catalog, new(diskio.Work))
	if err != nil {
		t.Fatal(err)
	}
	sum := wire.NewSummer()
	for i, m := range o.Members {
		sum.Member(m.Bytes)
		for left := m.Bytes; left > 0; left -= wire.ChunkBytes {
			c := contentOf(m.Name, int(min(left, wire.ChunkBytes)))
			f := wire.Frame{Sum: crc32.Checksum(c, wire.Castagnoli), Payload: c}
			if err := staged.data(i, f); err != nil {
				t.Fatal(err)
			}
			sum.Chunk(f.Sum)
		}
	}
	l, err := staged.finish(wire.Frame{}, catalog.Record{Opening: o, From: "a", Sum: sum.Total()})
	if err != nil {
		t.Fatal(err)
	}
	return &commitUnderWay{n, s, l, newCommitter(n.Vault, nil, func([]vault.Held) {})}
}
