package catalog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

func FuzzRecords(f *testing.F) {
	o := wire.Opening{ID: "cache/-/x", Members: []wire.MemberSize{{Name: "x", Bytes: 1}}}
	f.Add(AppendRecord(nil, Record{Opening: o, Placed: []Placed{{0, "x", 1, []byte("abcd")}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := ParseRecord(b); err == nil {
			if _, err := ParseRecord(AppendRecord(nil, r)); err != nil {
				t.Errorf("record %+v: %v", r, err)
			}
		}
	})
}

// A record that another version of lifeboat wrote is sound, and cannot be read. It counts as corrupt, or no block could replace
// it.
func TestRecordsOfAnotherVersionAreCorrupt(t *testing.T) {
	whole := AppendRecord(nil, Record{Opening: wire.Opening{ID: "cache/-/x", Members: []wire.MemberSize{{Name: "x", Bytes: 1}}}, From: "a"})
	body := whole[:len(whole)-4]
	for name, b := range map[string][]byte{"a field less": body[:len(body)-2], "a field more": append(bytes.Clone(body), 0), "nothing": nil} {
		sealed := binary.BigEndian.AppendUint32(bytes.Clone(b), crc32.Checksum(b, wire.Castagnoli))
		if _, err := ParseRecord(sealed); !errors.Is(err, wire.ErrCorrupt) {
			t.Errorf("%s: got %v, want it corrupt", name, err)
		}
	}
	if _, err := ParseRecord([]byte{1}); !errors.Is(err, wire.ErrCorrupt) {
		t.Errorf("a byte: got %v, want it corrupt", err)
	}
}

func TestRecordsRoundTrip(t *testing.T) {
	o := wire.Opening{ID: "spark/blockmgr-a/shuffle_1_2_0", Kind: inventory.KindShuffle, Layout: inventory.LayoutSpark, ModTime: -5,
		Members: []wire.MemberSize{{Name: "shuffle_1_2_0.data", Bytes: 1 << 40}, {Name: "shuffle_1_2_0.index", Bytes: 0}}}
	r := Record{Opening: o, From: "a", Landed: time.Unix(0, 99), Sum: wire.Sum{1, 2}, Segment: 3, Offset: 4, OpenLen: 5, Length: 6,
		Placed: []Placed{{1, "p", 7, []byte("abcd")}}}
	if got, err := ParseRecord(AppendRecord(nil, r)); err != nil || !bytes.Equal(AppendRecord(nil, got), AppendRecord(nil, r)) {
		t.Errorf("record: got %+v, %v", got, err)
	}
}
