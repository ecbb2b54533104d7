package catalog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/migration/fields"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Record is one landed block.
type Record struct {
	wire.Opening
	From    string // the node that it was carried from
	Landed  time.Time
	Sum     wire.Sum
	Segment uint32 // in the vault; 0: the block lies in its place in a store
	Offset  int64  // of the open frame in the segment
	OpenLen int64  // of the open frame
	Length  int64  // of the whole block in the segment
	Placed  []Placed
}

// Placed is where a member lies in a store, and the CRC-32C of each of its chunks.
type Placed struct {
	Root    int
	Path    string
	ModTime int64
	Chunks  []byte // four bytes each
}

// AppendRecord appends a record as the catalog keeps it, with a checksum.
func AppendRecord(b []byte, r Record) []byte {
	at := len(b)
	b = r.Opening.Append(b)
	b = append(fields.AppendString(b, r.From), r.Sum[:]...)
	b = binary.AppendVarint(b, r.Landed.UnixNano())
	b = binary.AppendUvarint(b, uint64(r.Segment))
	b = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(b, r.Offset), r.OpenLen), r.Length)
	b = binary.AppendUvarint(b, uint64(len(r.Placed)))
	for _, p := range r.Placed {
		b = fields.AppendString(binary.AppendVarint(b, int64(p.Root)), p.Path)
		b = fields.AppendString(binary.AppendVarint(b, p.ModTime), string(p.Chunks))
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[at:], wire.Castagnoli))
}

// shortRecord is how long a record may be for its strings to share one allocation with the rest. In a longer one most
// bytes are the checksums of a large file in place.
const shortRecord = 1 << 10

func soundRecord(v []byte) bool {
	return len(v) >= 4 && crc32.Checksum(v[:len(v)-4], wire.Castagnoli) == binary.BigEndian.Uint32(v[len(v)-4:])
}

// ParseRecord reads what AppendRecord wrote. It returns wire.ErrCorrupt for every record that it cannot read, even a sound one of another version of lifeboat: a block
// that comes again may then replace it.
func ParseRecord(v []byte) (r Record, err error) {
	if !soundRecord(v) {
		return r, wire.ErrCorrupt
	}
	body := v[:len(v)-4]
	d := fields.Decode(body)
	if len(body) <= shortRecord {
		d = fields.DecodeText(body)
	}
	r.ID, r.Kind, r.Layout, r.Origin, r.ModTime, r.Value = d.Text(), d.Text(), d.Text(), d.Text(), d.Varint(), d.Varint()
	for range min(d.Uvarint(), wire.MaxMembers) {
		r.Members = append(r.Members, wire.MemberSize{Name: d.Text(), Bytes: d.Varint()})
	}
	r.From = d.Text()
	for i := range r.Sum {
		r.Sum[i] = d.Byte()
	}
	r.Landed = time.Unix(0, d.Varint())
	r.Segment = uint32(d.Uvarint())
	r.Offset, r.OpenLen, r.Length = d.Varint(), d.Varint(), d.Varint()
	for range min(d.Uvarint(), wire.MaxMembers) {
		r.Placed = append(r.Placed, Placed{int(d.Varint()), d.Text(), d.Varint(), d.Bytes()})
	}
	if err := d.End("record"); err != nil {
		return r, fmt.Errorf("%w: %w", err, wire.ErrCorrupt)
	}
	return r, nil
}

// Tag returns the name of the version that landed.
func (r *Record) Tag() string { return inventory.Tag(r.Bytes(), r.ModTime) }

// Is reports whether the record is of the version that a member was planned as.
func (r *Record) Is(m inventory.Member, i int) bool {
	return r.Landed.UnixNano() == m.ChangeTime && i < len(r.Members) && r.Members[i].Bytes == m.Bytes
}

// Outdone reports whether a block that came home to the vault has another version in the node's own store: its engine has written it
// since. A store that cannot be read counts as having none.
func (r *Record) Outdone(s *inventory.Store, node string) bool {
	if s == nil || r.Segment == 0 || r.Origin != node {
		return false
	}
	if slices.ContainsFunc(s.Paths, func(dir string) bool { return s.Readable(dir) != nil }) {
		return false
	}
	own, err := s.Find(inventory.BlockID(r.ID))
	return err == nil && own.Tag() != r.Tag()
}

// newer reports which of two blocks of one id is to stay. Of two that were born on different nodes the last was let in, so the first was no
// longer here by then; their times say nothing.
func (r Record) newer(than Record) bool {
	if r.Origin != than.Origin {
		return r.Landed.After(than.Landed)
	}
	return r.ModTime > than.ModTime || r.ModTime == than.ModTime && r.Landed.After(than.Landed)
}

// SameAs reports whether both lie at one place.
func (p Placed) SameAs(other Placed) bool { return p.Root == other.Root && p.Path == other.Path }

// ErrConflict says that an id names other bytes here already. Nodes whose stores have the same name share one name space of
// ids. If two nodes each have their own "cache/-/x", one of the two blocks has to be named as lost: to replace the first by
// the second would lose bytes that a receipt was given for.
var ErrConflict = errors.New("another block of this id is here")

// ErrSuperseded says that this node has a newer version of a block than the one that another node sends.
var ErrSuperseded = errors.New("a newer version is here")

// Why a copy is kept that another node wants forgotten; a second request would end the same.
var (
	ErrKept     = errors.New("it is kept")
	ErrNotOwned = fmt.Errorf("%w: it was born on another node", ErrKept)
	ErrAnother  = fmt.Errorf("%w: another version is here", ErrKept)
)

// Forgettable returns why a copy is kept, with its origin and tag, though a node asks to have one version forgotten; nil:
// it may go.
func Forgettable(node, version, origin, tag string) error {
	switch {
	case origin != node:
		return ErrNotOwned
	case tag != version:
		return ErrAnother
	}
	return nil
}

// Against returns why a record does not give way to another one of its id.
func (r *Record) Against(other *Record) error {
	switch {
	case r.Sum == other.Sum:
		return nil
	case r.Origin != other.Origin && SameOutput(r.ID, r.Members, other.Members):
		return ErrSuperseded
	case r.Origin != other.Origin:
		return fmt.Errorf("%w, of other content, from %s", ErrConflict, r.Origin)
	case other.From != other.Origin && other.ModTime < r.ModTime: // the origin itself knows what it has
		return ErrSuperseded
	}
	return nil
}

// SameOutput reports whether two blocks of one id are the same map output although one lacks its checksums. Spark itself carries no
// checksums when it decommissions an executor, and may put its copy where one of ours lies. The id is that of one attempt at a task, so
// with the same sizes the content is the same.
func SameOutput(id string, one, other []wire.MemberSize) bool {
	sums := func(m wire.MemberSize) bool { return strings.Contains(m.Name, ".checksum.") }
	return len(one) != len(other) && inventory.MapOutput.MatchString(inventory.BlockID(id).Name()) &&
		slices.Equal(slices.DeleteFunc(slices.Clone(one), sums), slices.DeleteFunc(slices.Clone(other), sums))
}
