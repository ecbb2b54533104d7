package manifest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Version is a hash of a block's id and of the sizes and modification times of its members. 16 bytes: two blocks that
// share one would make the second look moved, so chance must not matter.
type Version [16]byte

// VersionOf returns a block's Version.
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

// Half returns half of a version: enough to compare versions of one block.
func (v Version) Half() uint64 { return binary.BigEndian.Uint64(v[:]) }

// modifiedAt comes before the time when a block was modified last, in Unix nanoseconds. The two are all of an Entry's Version where
// the block has one file, and come after the hash where it has several. Lines of several files without a time are of older builds.
const modifiedAt = "@"

// AppendVersion writes an Entry's Version. For a block of one file it writes no hash: the line has the id and the size, and with the
// time when the file was modified they are all that the hash is made of; it is hardly ever asked for.
func AppendVersion(b inventory.Block, line []byte) []byte {
	if len(b.Members) == 1 {
		return strconv.AppendInt(append(line, modifiedAt...), b.Members[0].ModTime.UnixNano(), 10)
	}
	v := VersionOf(b)
	return strconv.AppendInt(append(hex.AppendEncode(line, v[:]), modifiedAt...), b.Modified().UnixNano(), 10)
}

// OfVersion returns the version that the line says was moved; false if it names none.
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

// Modified returns when the version that the line says was moved was modified; the zero time if it names none.
func (e Entry) Modified() time.Time {
	_, at, _ := strings.Cut(e.Version, modifiedAt)
	modified, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(0, modified)
}

// Tag returns the inventory.Tag of the version that the line says was moved, as it is where the block landed; "" if the line names none.
func (e Entry) Tag() string {
	_, at, _ := strings.Cut(e.Version, modifiedAt)
	modified, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return ""
	}
	return inventory.Tag(e.Bytes, modified)
}
