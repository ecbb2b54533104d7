package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// A moved version is recognised by its line in the account, whatever files the block has and whichever lifeboat wrote the line.
func TestMovedLineTellsTheVersion(t *testing.T) {
	modified := time.Unix(1_700_000_000, 123_456_789)
	one := inventory.Block{ID: "cache/-/x <é>", Members: []inventory.Member{{Name: "x <é>", Bytes: 4096, ModTime: modified}}}
	two := inventory.Block{ID: "spark/app-1-1/shuffle_0_0_0", Members: []inventory.Member{{Bytes: 7, ModTime: modified}, {Bytes: 8, ModTime: modified}}}
	before := inventory.Block{ID: "cache/-/y", Members: []inventory.Member{{Bytes: 1, ModTime: time.Unix(-1, 0)}}}
	l, err := Open(t.TempDir(), nil, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	blocks := []*inventory.Block{&one, &two, &before}
	if got, want := l.AddMoved("b", slices.Values(blocks)), (inventory.Count{Blocks: 3, Bytes: 4096 + 15 + 1}); got != want {
		t.Errorf("moved %+v, want %+v", got, want)
	}
	if _, err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := l.AddMoved("b", slices.Values(blocks)); got.Blocks != 3 || l.Counts().Moved.Blocks != 3 {
		t.Errorf("after its end the account has %d blocks, and %d were told of", l.Counts().Moved.Blocks, got.Blocks)
	}
	i := 0
	for e, err := range Entries(l.dir) {
		b := *blocks[i]
		if v, ok := e.OfVersion(); err != nil || !ok || v != VersionOf(b) {
			t.Errorf("%s: got %x, %v, %v, want %x", b.ID, v, ok, err, VersionOf(b))
		}
		want := Entry{string(b.ID), b.Bytes(), Moved, "b", "", e.Version}
		marshalled, err := json.Marshal(want)
		if e != want || err != nil || string(e.AppendLine(nil)) != string(marshalled)+"\n" {
			t.Errorf("%s: got %+v, want %+v", b.ID, e, want)
		}
		if touched := b; touched.ID == one.ID {
			touched.Members = []inventory.Member{{Name: "x", Bytes: 4096, ModTime: modified.Add(1)}}
			if v, _ := e.OfVersion(); v == VersionOf(touched) {
				t.Errorf("%s: what was written since is taken for what was moved", b.ID)
			}
		}
		i++
	}
	if i != len(blocks) {
		t.Errorf("%d lines, want %d", i, len(blocks))
	}
	v := VersionOf(one)
	hashed := Entry{ID: string(one.ID), Bytes: 4096, Version: fmt.Sprintf("%x", v)} // as lines of one file were before
	if got, ok := hashed.OfVersion(); !ok || got != v {
		t.Errorf("%s: got %x, %v, want %x", hashed.Version, got, ok, v)
	}
	for _, wrong := range []string{"", "@", "@x", "@99999999999999999999", "00", strings.Repeat("0", 34), strings.Repeat("x", 32)} {
		if v, ok := (Entry{Version: wrong}).OfVersion(); ok {
			t.Errorf("%q was taken for %x", wrong, v)
		}
	}
}
