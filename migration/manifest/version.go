package manifest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Version is a hash of a block's id and of the sizes and modification times of its members. 16 bytes: two blocks that
// share one would make the second look moved, so chance must not matter.
type Version [16]byte

// VersionOf is a block's.
func VersionOf(b inventory.Block) Version {
	said := append(make([]byte, 0, 512), b.ID...) // that much needs no allocation
	for _, m := range b.Members {
		said = appendContent(said, m.Bytes, m.ModTime.UnixNano())
	}
	return hashOf(said)
}

func appendContent(said []byte, bytes, modified int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(said, uint64(bytes)), uint64(modified))
}

func hashOf(said []byte) (v Version) {
	sum := sha256.Sum256(said)
	copy(v[:], sum[:])
	return v
}

// Half is enough of a version to compare one block's by.
func (v Version) Half() uint64 { return binary.BigEndian.Uint64(v[:]) }

// modifiedAt is before the time in Unix nanoseconds when a block was modified last. It is all of an Entry's Version where the
// block has one file, and comes after the hash where it has several; lines of several that have none were written before.
const modifiedAt = "@"

// AppendVersion writes an Entry's Version. The id and the size of a block of one file stand in the line: with the time when
// the file was modified, that is all that its hash is made of, and next to nobody asks for that.
func AppendVersion(b inventory.Block, line []byte) []byte {
	if len(b.Members) == 1 {
		return strconv.AppendInt(append(line, modifiedAt...), b.Members[0].ModTime.UnixNano(), 10)
	}
	v := VersionOf(b)
	return strconv.AppendInt(append(hex.AppendEncode(line, v[:]), modifiedAt...), b.Modified().UnixNano(), 10)
}

// OfVersion is what the line says was moved; false if it does not say that.
func (e Entry) OfVersion() (v Version, ok bool) {
	if at, one := strings.CutPrefix(e.Version, modifiedAt); one {
		modified, err := strconv.ParseInt(at, 10, 64)
		return hashOf(appendContent([]byte(e.ID), e.Bytes, modified)), err == nil
	}
	hash, _, _ := strings.Cut(e.Version, modifiedAt)
	said, err := hex.DecodeString(hash)
	if err != nil || len(said) != len(v) {
		return v, false
	}
	return Version(said), true
}

// Tag names the version that the line says was moved, as inventory.Tag does where it landed; "" if the line does not say that.
func (e Entry) Tag() string {
	_, at, _ := strings.Cut(e.Version, modifiedAt)
	modified, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return ""
	}
	return inventory.Tag(e.Bytes, modified)
}
