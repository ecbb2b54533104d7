package migration

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// What was looked for before it is written is not looked for again, unless the catalog has changed: what lies under an id
// by then loses its weight, and where it lay is free.
func TestWhatCameBetweenTheLookAndTheCommitIsReplaced(t *testing.T) {
	at := func(segment uint32, offset int64) record {
		return record{Opening: wire.Opening{ID: "cache/-/x", Origin: "a", Members: []wire.MemberSize{{Name: "x", Bytes: 10}}}, Segment: segment, Offset: offset, Length: 100}
	}
	for what, commit := range map[string]func(*catalog, []change) error{
		"by another commit": func(c *catalog, looked []change) error {
			for _, l := range looked {
				if _, err := c.commit([]change{l}, nil, nil); err != nil {
					return err
				}
			}
			return nil
		},
		"by the same": func(c *catalog, looked []change) error { _, err := c.commit(looked, nil, nil); return err },
		"by the same, in another transaction": func(c *catalog, looked []change) error {
			var before []change
			for i := range commitRecords - 1 {
				before = append(before, change{&record{Opening: wire.Opening{ID: fmt.Sprintf("cache/-/a%05d", i)}, Segment: 7}, looked[0].fresh})
			}
			_, err := c.commit(append(before, looked...), nil, nil)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			c := newNode(t, "b").vault.catalog
			batch := []*landed{{record: at(1, 0)}, {record: at(2, 500)}}
			c.contradictions(batch)
			if err := commit(c, []change{batch[0].change(), batch[1].change()}); err != nil {
				t.Fatal(err)
			}
			if got := c.count().Bytes; got != 10 {
				t.Errorf("got %d bytes that rest here, want those of one block, 10", got)
			}
			if free, empty, err := c.free(1); err != nil || !empty || !slices.Equal(free, []stretch{{0, 100}}) {
				t.Errorf("got %v free in the first segment, empty %t, %v, want all that the first record had there", free, empty, err)
			}
			if r, err := c.get("cache/-/x"); err != nil || r.Segment != 2 {
				t.Errorf("got %+v, %v, want the second record", r, err)
			}
		})
	}
}

// In whatever order ids are looked up, what is found is what is there.
func TestLookupFindsWhatIsThere(t *testing.T) {
	c := newNode(t, "b").vault.catalog
	r := rand.New(rand.NewPCG(1, 1))
	id := func() string { return fmt.Sprintf("cache/-/%03d", r.IntN(600)) }
	var some []change
	for range 300 {
		some = append(some, change{record: &record{Opening: wire.Opening{ID: id()}}})
	}
	if _, err := c.commit(some, nil, nil); err != nil {
		t.Fatal(err)
	}
	err := c.view(func(tx *bbolt.Tx) error {
		for range 20 {
			ids := make([]string, 100)
			for i := range ids {
				ids[i] = id()
			}
			slices.Sort(ids[r.IntN(len(ids)):])
			look := newLookup(tx)
			for _, id := range ids {
				if got, want := look.get(id), tx.Bucket(bucketBlocks).Get([]byte(id)); string(got) != string(want) || got == nil != (want == nil) {
					t.Fatalf("%s: got %q, want %q", id, got, want)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A record that cannot be read has a name and nothing else. A drain names it as lost, and one that carries what was born here passes it by.
func TestDrainWithARecordThatCannotBeRead(t *testing.T) {
	for _, own := range []bool{false, true} {
		a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
		wantDurable(t, landAll(t, a, blockFrames(1, "cache/-/x", []byte("x")), blockFrames(2, "cache/-/y", []byte("y"))))
		write(t, filepath.Join(a.dir, "cache/own"), []byte("own"))
		err := a.vault.catalog.write(func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketBlocks).Put([]byte("cache/-/x"), []byte("broken"))
		})
		if err != nil {
			t.Fatal(err)
		}
		tr := newTrip(t, a, b)
		tr.cfg.Own = own
		sum, entries := tr.run(within(t, time.Minute))
		if _, moved := outcome(t, entries, manifest.Moved)["cache/-/own"]; !moved {
			t.Errorf("own=%v: got %v", own, entries)
		}
		if _, lost := outcome(t, entries, manifest.Lost)["cache/-/x"]; lost == own {
			t.Errorf("own=%v: got %+v, %v", own, sum, entries)
		}
	}
}
