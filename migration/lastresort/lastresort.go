// Package lastresort lays blocks out in storage outside of the fleet, where they go when no peer takes them (the configuration calls it
// fallback), and reads them back. It decides under which names they lie, in our own layout or as Spark's FallbackStorage would have
// written them, and keeps a record of each that vouches for its bytes. Which blocks go there and when is decided in package migration;
// what a bucket and a directory are, package fallback knows.
//
// The files: lastresort (names), record, read, forget.
package lastresort

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Objects is storage outside of the fleet: contents under names with slashes, each of them whole or not there. Its methods
// may be called from any goroutine and return soon after ctx ends, or when the storage has been silent for long.
type Objects interface {
	// Put makes so many bytes of content durable under a name. With fresh, fs.ErrExist says that the name was taken; fs.ErrInvalid
	// says that nothing can have that name there. Content is read to its end; an error of it is returned, and the name is as it was
	// before. When ctx ends no more is sent; what was sent whole may still be answered for a moment.
	Put(ctx context.Context, name string, bytes int64, content io.Reader, fresh bool) error
	// Get fills into from an offset of a content; less than that, with io.EOF, at its end. fs.ErrNotExist when there is none.
	Get(ctx context.Context, name string, from int64, into []byte) (n int, err error)
	// Stat returns the size, a tag that changes with the content, and the time of its Put.
	Stat(ctx context.Context, name string) (bytes int64, tag string, at time.Time, err error)
}

// Storage is a fallback: where blocks go when no peer takes them.
type Storage struct {
	Name    string // after "fallback:" in accounts
	Layout  string // LayoutBlocks or LayoutSpark
	Streams int    // uploads at once
	Objects Objects

	mu       sync.Mutex
	changing map[inventory.BlockID]chan struct{} // records that PutRecord or Forget is about to replace, each until it is closed
}

// Layouts of a fallback.
const (
	LayoutBlocks = "blocks"
	LayoutSpark  = "spark-fallback"
)

// A fallback keeps, below its directory or prefix:
//
//	lifeboat-blocks/NODE/STORE/SCOPE/NAME       the bytes of one file of a block, by the node that it was born on
//	APPLICATION/SHUFFLE/HASH/NAME               the same, in Spark's layout
//	lifeboat-records/XX/YY....json              what the block is made of and its checksums, by the hash of its id
//
// The record is put last: a block without one is not there. The origin in a path keeps nodes from overwriting each other's bytes;
// of two nodes with a block of one id, the id's only record decides whose is kept. The hash makes any id a name that every file
// system and bucket takes.
const (
	blocksDir  = "lifeboat-blocks/"
	recordsDir = "lifeboat-records/"
)

// PeerPrefix comes before a fallback's name in accounts.
const PeerPrefix = "fallback:"

// Peer is the name of a fallback in accounts and tables. No node can have that name: nodes' names have no colon.
func (s *Storage) Peer() string { return PeerPrefix + s.Name }

func recordName(id inventory.BlockID) string {
	h := sha256.Sum256([]byte(id))
	x := hex.EncodeToString(h[:])
	return recordsDir + x[:2] + "/" + x[2:] + ".json"
}

// Names are where the files of a block lie, in the block's order.
func (r Record) Names() []string {
	names := make([]string, len(r.Members))
	for i, m := range r.Members {
		if r.Place == LayoutSpark {
			names[i] = SparkName(r.ID.Scope(), m.Name)
		} else {
			names[i] = blocksDir + r.Origin + "/" + string(r.ID.Sibling(m.Name))
		}
	}
	return names
}

// SparkName is where Spark's FallbackStorage keeps a file of an application's shuffle (from 3.2 on):
// APPLICATION/SHUFFLE/HASH/NAME, HASH being JavaUtils.nonNegativeHash of the name, in decimal.
func SparkName(app, name string) string {
	return app + "/" + shuffleOf(name) + "/" + strconv.Itoa(int(inventory.JavaHash(name))) + "/" + name
}

// sparkFirstName is where Spark 3.1 kept it.
func sparkFirstName(app, name string) string { return app + "/" + shuffleOf(name) + "/" + name }

// shuffleOf is the number of the shuffle in the name of a map output's file.
func shuffleOf(name string) string { return strings.SplitN(name, "_", 3)[1] }

// Place returns the layout that a block goes by. Spark keeps only map outputs in its fallback storage, by the application's id,
// which not every directory of a block manager tells.
func (s *Storage) Place(b inventory.Block) string {
	if s.Layout == LayoutSpark && b.Layout == inventory.LayoutSpark && inventory.MapOutput.MatchString(b.ID.Name()) && inventory.ApplicationDir.MatchString(b.ID.Scope()) {
		return LayoutSpark
	}
	return LayoutBlocks
}

var sparkFile = regexp.MustCompile(`^(application_\d+_\d+|app-\d+-\d+|local-\d+)/\d+/(\d+/)?(` +
	`shuffle_\d+_\d+_\d+\.(data|index|checksum\.[A-Z0-9]+)|` +
	`\.shuffle_\d+_\d+_\d+\.(data|index)\.crc)$`) // which Hadoop puts beside each file in a directory (ChecksumFileSystem)

// Owns reports whether a name in a fallback's storage was given by this package or by Spark's fallback storage. A content with
// another name is somebody else's.
func Owns(name string) bool {
	return strings.HasPrefix(name, blocksDir) || strings.HasPrefix(name, recordsDir) || sparkFile.MatchString(name)
}
