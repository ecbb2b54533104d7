package migration

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Two nodes keep different bytes under one id. The first that leaves has its receipt, and its bytes stay. The block of the second
// is named as lost, at once and not at the deadline.
func TestSecondContentOfAnIDIsLostByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b", with(filesStore, "cache"))
		c := newNode(t, "c")
		write(t, filepath.Join(a.Dir, "cache/x"), []byte("a's x"))
		write(t, filepath.Join(b.Dir, "cache/x"), []byte("b's x"))
		write(t, filepath.Join(b.Dir, "cache/y"), []byte("b's y"))
		if sum, _ := a.drain(t, within(t, time.Minute), c); sum.Moved.Blocks != 1 || sum.Lost.Blocks != 0 {
			t.Fatalf("a: got %+v, want 1 moved", sum)
		}
		began := time.Now()
		sum, entries := b.drain(t, within(t, time.Minute), c)
		if lost := outcome(t, entries, manifest.Lost)["cache/-/x"]; sum.Moved.Blocks != 1 || !strings.Contains(lost.Reason, "another block of this id is here") {
			t.Fatalf("b: got %+v, %v", sum, entries)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s: a conflict is no reason to wait", took)
		}
		if got := c.Content(t, "cache/-/x"); string(got) != "a's x" {
			t.Errorf("c serves %q", got)
		}
	})
}

// The same bytes under the same id are no conflict, whoever has them.
func TestSameContentOfTwoOriginsIsOneBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b", with(filesStore, "cache"))
		c := newNode(t, "c", with(filesStore, "cache")) // has them in its own store, too
		for _, n := range []*node{a, b, c} {
			write(t, filepath.Join(n.Dir, "cache/x"), contentOf("x", 3*wire.ChunkBytes))
		}
		for _, n := range []*node{a, b} {
			if sum, entries := n.drain(t, within(t, time.Minute), c); sum.Moved.Blocks != 1 {
				t.Fatalf("%s: got %+v %v, want 1 moved", n.Name, sum, entries)
			}
		}
		if len(c.Landed) != 1 {
			t.Errorf("c took %d copies, want 1", len(c.Landed))
		}
	})
}

// Two nodes leave, and one of them has an old version of a block that was born on the other. If it hands that on, it does not
// replace the new version, whichever comes first.
func TestOlderVersionThatIsHandedOnReplacesNoNewer(t *testing.T) {
	for _, store := range []string{"vault", "place"} {
		t.Run(store, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, c, d := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b"), newNode(t, "c"), newNode(t, "d")
				if store == "place" {
					c = newNode(t, "c", with(placeStore, "cache"))
				}
				old, newer := contentOf("old", 2*wire.ChunkBytes), contentOf("newer", 2*wire.ChunkBytes)
				write(t, filepath.Join(a.Dir, "cache/x"), old)
				a.drain(t, within(t, time.Minute), b)
				time.Sleep(time.Second)
				write(t, filepath.Join(a.Dir, "cache/x"), newer)
				later := time.Now().Add(time.Hour)
				if err := os.Chtimes(filepath.Join(a.Dir, "cache/x"), later, later); err != nil {
					t.Fatal(err)
				}
				if sum, entries := a.drain(t, within(t, time.Minute), c); sum.Moved.Blocks != 1 {
					t.Fatalf("got %+v %v", sum, entries)
				}
				if sum, entries := b.drain(t, within(t, time.Minute), c); sum.Lost.Blocks != 0 {
					t.Errorf("what another has in a newer version is named as lost: %+v %v", sum, entries)
				}
				if got := c.Content(t, "cache/-/x"); !bytes.Equal(got, newer) {
					t.Errorf("c serves %.20q, want the newer version", got)
				}
				tr := newTrip(t, b, d)
				tr.cfg.Dir = filepath.Join(b.Dir, "another-incident")
				if sum, entries := tr.run(within(t, time.Minute)); sum.Moved.Blocks != 1 {
					t.Fatalf("got %+v %v", sum, entries)
				}
				if sum, entries := c.drain(t, within(t, time.Minute), d); sum.Moved.Blocks != 1 {
					t.Errorf("got %+v %v", sum, entries)
				}
				if got := d.Content(t, "cache/-/x"); !bytes.Equal(got, newer) {
					t.Errorf("d serves %.20q, want the newer version", got)
				}
			})
		})
	}
}

// A block that came over another node still belongs to its origin: a newer version straight from the origin replaces it.
func TestNewerVersionFromTheOriginReplacesWhatCameOverAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b"), newNode(t, "c")
		write(t, filepath.Join(a.Dir, "cache/x"), []byte("old"))
		a.drain(t, within(t, time.Minute), b)
		b.drain(t, within(t, time.Minute), c)
		write(t, filepath.Join(a.Dir, "cache/x"), []byte("newer"))
		if sum, entries := a.drain(t, within(t, time.Minute), c); sum.Lost.Blocks != 0 {
			t.Fatalf("got %+v %v", sum, entries)
		}
		if got := c.Content(t, "cache/-/x"); !bytes.Equal(got, []byte("newer")) {
			t.Errorf("c serves %q, want the newer version", got)
		}
	})
}

// A block that was handed on comes home, and is older than the file that the node has now: it counts as superseded, and nobody has
// to look for it.
func TestOlderVersionThatComesHomeIsSuperseded(t *testing.T) {
	for name, store := range map[string]inventory.StoreConfig{"vault": filesStore, "place": placeStore} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := newNode(t, "a", with(store, "cache")), newNode(t, "b")
				file := filepath.Join(a.Dir, "cache/x")
				write(t, file, contentOf("old", 2*wire.ChunkBytes))
				write(t, filepath.Join(a.Dir, "cache/y"), contentOf("y", 1000))
				a.drain(t, within(t, time.Minute), b)
				time.Sleep(time.Second)
				write(t, file, contentOf("newer", 2*wire.ChunkBytes))
				write(t, filepath.Join(a.Dir, "cache/y"), contentOf("another", 1000))
				earlier := time.Now().Add(-2 * time.Hour) // else a's own statement of its version would be the newest
				if err := os.Chtimes(filepath.Join(a.Dir, "cache/y"), earlier, earlier); err != nil {
					t.Fatal(err)
				}
				sum, entries := b.drain(t, within(t, time.Minute), a)
				if lost := outcome(t, entries, manifest.Lost); sum.Moved.Blocks != 1 || len(lost) != 1 || lost["cache/-/y"].Reason == "" {
					t.Errorf("got %+v %v, want y lost alone", sum, entries)
				}
				if got := a.Content(t, "cache/-/x"); !bytes.Equal(got, contentOf("newer", 2*wire.ChunkBytes)) {
					t.Errorf("a serves %.20q, want the newer version", got)
				}
				if got := a.Vault.Count(); got != (inventory.Count{}) || len(a.Landed) > 0 {
					t.Errorf("%+v rest there, and it told of %v", got, a.Landed)
				}
			})
		})
	}
}

// Spark empties an executor too, and moves no checksums. Its copy of a map output and ours count as one block, whichever comes
// first, and nothing is lost.
func TestMapOutputWithoutChecksumsIsTheSame(t *testing.T) {
	for _, first := range []string{"carried", "spark's", "at the peer"} {
		t.Run(first, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, c := newNode(t, "a", with(sparkStore, "d0")), newNode(t, "b", with(sparkStore, "d0")), newNode(t, "c", with(sparkStore, "d0"))
				put := func(n *node, checksums bool) map[string][]byte {
					managers := []string{filepath.Join(n.Dir, "d0/application_1_1/blockmgr-x")}
					files := writeMapOutput(t, managers, 1, 2, 100, 50)
					if sums := "shuffle_1_2_0.checksum.ADLER32"; !checksums {
						if err := os.Remove(spot(managers, sums)); err != nil {
							t.Fatal(err)
						}
					}
					return files
				}
				want := put(a, true)["shuffle_1_2_0.data"]
				leave := []*node{a}
				switch first {
				case "carried":
					put(b, false)
					leave = []*node{a, b}
				case "spark's":
					put(b, false)
					leave = []*node{b, a}
				case "at the peer":
					put(c, false)
				}
				for _, n := range leave {
					if sum, entries := n.drain(t, within(t, time.Minute), c); sum.Moved.Blocks != 1 || sum.Lost.Blocks != 0 {
						t.Errorf("%s: got %+v %v, want 1 moved", n.Name, sum, entries)
					}
				}
				if got := c.Content(t, "spark/application_1_1/shuffle_1_2_0.data"); !bytes.Equal(got, want) {
					t.Errorf("c serves %d bytes, want %d", len(got), len(want))
				}
			})
		})
	}
}

// Two map outputs of one id and one size are not taken for the same if both have checksums, or neither has.
func TestMapOutputsOfOneSizeAreNotTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, c := newNode(t, "a", with(sparkStore, "d0")), newNode(t, "c", with(sparkStore, "d0"))
		writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/application_1_1/blockmgr-x")}, 1, 2, 100, 50)
		writeMapOutput(t, []string{filepath.Join(c.Dir, "d0/application_1_1/blockmgr-x")}, 1, 2, 100, 50)
		write(t, spot([]string{filepath.Join(c.Dir, "d0/application_1_1/blockmgr-x")}, "shuffle_1_2_0.data"), contentOf("other", 150))
		if sum, entries := a.drain(t, within(t, time.Minute), c); sum.Lost.Blocks != 1 {
			t.Errorf("got %+v %v, want 1 lost", sum, entries)
		}
	})
}
