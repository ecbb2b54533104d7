package catalog

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// A catalog is written as it was when the golden file was made, so an earlier lifeboat reads what this one leaves, and this one what that
// left. Where that cannot stay so, format has to rise.
func TestCatalogIsWrittenAsBefore(t *testing.T) {
	small := Record{From: "b", Landed: time.Unix(5, 0), Sum: wire.Sum{1, 2}, Segment: 3, Offset: 4, OpenLen: 50, Length: 600, Opening: wire.Opening{
		ID: "cache/-/x", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Origin: "a", ModTime: 7, Value: 8, Members: []wire.MemberSize{{Name: "x", Bytes: 9}}}}
	placed := Record{From: "a", Landed: time.Unix(6, 0), Placed: []Placed{{1, "0a/shuffle_1_2_0.data", 7, []byte("abcd")}, {0, "0b/shuffle_1_2_0.index", 7, nil}}, Opening: wire.Opening{
		ID: "spark/blockmgr-a/shuffle_1_2_0", Kind: inventory.KindShuffle, Layout: inventory.LayoutSpark, ModTime: -5,
		Members: []wire.MemberSize{{Name: "shuffle_1_2_0.data", Bytes: 4}, {Name: "shuffle_1_2_0.index", Bytes: 0}}}}
	c := opened(t)
	if _, err := c.Commit([]Change{{Record: &small}, {Record: &placed}}, map[uint32]End{3: {At: 654, Dir: "/vault"}}, []Record{{Segment: 3, Offset: 604, Length: 50}}); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/catalog.txt"
	got := dumped(t, c.db)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// dumped is all that a file has, a line each.
func dumped(t *testing.T, db *bbolt.DB) string {
	t.Helper()
	var b strings.Builder
	if err := db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, in *bbolt.Bucket) error {
			fmt.Fprintf(&b, "%s %d\n", name, in.Sequence())
			return in.ForEach(func(k, v []byte) error {
				fmt.Fprintf(&b, "\t%q %x\n", k, v)
				return nil
			})
		})
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
