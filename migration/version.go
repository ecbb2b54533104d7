package migration

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"strconv"
	"strings"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// version is a hash of a block's id and of the sizes and modification times of its members. 16 bytes: two blocks that
// share one would make the second look moved, so chance must not matter.
type version [16]byte

func blockVersion(b inventory.Block) version {
	said := append(make([]byte, 0, 512), b.ID...) // that much needs no allocation
	for _, m := range b.Members {
		said = appendContent(said, m.Bytes, m.ModTime.UnixNano())
	}
	return versionOf(said)
}

func appendContent(said []byte, bytes, modified int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(said, uint64(bytes)), uint64(modified))
}

func versionOf(said []byte) (v version) {
	sum := sha256.Sum256(said)
	copy(v[:], sum[:])
	return v
}

// latest are the newest versions of blocks that are known of, by half of their hashes: 16 bytes each. A block that becomes again what it
// was before is news.
type latest struct {
	seed maphash.Seed
	of   map[uint64]uint64 // by a hash of the id: of two that share one, each is news after the other
}

func newLatest() latest { return latest{maphash.MakeSeed(), map[uint64]uint64{}} }

// half is enough of a version to compare one block's by.
func (v version) half() uint64 { return binary.BigEndian.Uint64(v[:]) }

func (l latest) has(id inventory.BlockID) bool {
	_, has := l.of[maphash.String(l.seed, string(id))]
	return has
}

func (l latest) is(id inventory.BlockID, v version) bool {
	return l.of[maphash.String(l.seed, string(id))] == v.half()
}

func (l latest) set(id inventory.BlockID, v version) {
	l.of[maphash.String(l.seed, string(id))] = v.half()
}

// drop forgets a version if it is the newest.
func (l latest) drop(id inventory.BlockID, v version) {
	if l.is(id, v) {
		delete(l.of, maphash.String(l.seed, string(id)))
	}
}

// modifiedAt is before the time in Unix nanoseconds when a block was modified last. It is all of an Entry's Version where the
// block has one file, and comes after the hash where it has several; lines of several that have none were written before.
const modifiedAt = "@"

// appendVersion writes an Entry's Version. The id and the size of a block of one file stand in the line: with the time when
// the file was modified, that is all that its hash is made of, and next to nobody asks for that.
func appendVersion(b inventory.Block, line []byte) []byte {
	if len(b.Members) == 1 {
		return strconv.AppendInt(append(line, modifiedAt...), b.Members[0].ModTime.UnixNano(), 10)
	}
	v := blockVersion(b)
	return strconv.AppendInt(append(hex.AppendEncode(line, v[:]), modifiedAt...), b.Modified().UnixNano(), 10)
}

// version is what the line says was moved; false if it does not say that.
func (e Entry) version() (v version, ok bool) {
	if at, one := strings.CutPrefix(e.Version, modifiedAt); one {
		modified, err := strconv.ParseInt(at, 10, 64)
		return versionOf(appendContent([]byte(e.ID), e.Bytes, modified)), err == nil
	}
	hash, _, _ := strings.Cut(e.Version, modifiedAt)
	said, err := hex.DecodeString(hash)
	if err != nil || len(said) != len(v) {
		return v, false
	}
	return version(said), true
}

// tag names the version that the line says was moved, as record.tag does where it landed; "" if the line does not say that.
func (e Entry) tag() string {
	_, at, _ := strings.Cut(e.Version, modifiedAt)
	modified, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return ""
	}
	return ownTag(e.Bytes, modified) + `"`
}

// blockTag is what record.tag is where the block landed.
func blockTag(b inventory.Block) string { return ownTag(b.Bytes(), b.Modified().UnixNano()) + `"` }

// tag is what its own ETag at its source began with, if that was one file: of several, their size and the newest one's time.
func (r *record) tag() string { return ownTag(r.Bytes(), r.ModTime) + `"` }
