package migration

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"regexp"
	"strconv"
	"strings"
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
	// Stat returns the size, something that changes with the content, and the time of its Put.
	Stat(ctx context.Context, name string) (bytes int64, tag string, at time.Time, err error)
}

// Fallback is where blocks go when no peer takes them.
type Fallback struct {
	Name    string // after "fallback:" in accounts
	Layout  string // FallbackBlocks or FallbackSpark
	Streams int    // uploads at once
	Objects Objects
}

// Layouts of a fallback.
const (
	FallbackBlocks = "blocks"
	FallbackSpark  = "spark-fallback"
)

// A fallback keeps, below its directory or prefix:
//
//	lifeboat-blocks/NODE/STORE/SCOPE/NAME       the bytes of one file of a block, by the node that it was born on
//	APPLICATION/SHUFFLE/HASH/NAME               the same, in Spark's layout
//	lifeboat-records/XX/YY....json              what the block is made of and its checksums, by the hash of its id
//
// The record comes last: a block without one is not there. Origins keep nodes from each other's bytes; the one record of
// an id decides which of two nodes has it. The hash makes any id a name that every file system and bucket takes.
const (
	fallbackBlocks  = "lifeboat-blocks/"
	fallbackRecords = "lifeboat-records/"
	fallbackPeer    = "fallback:" // before its name
)

// Peer is the name of a fallback in accounts and tables. No node can have it: their names have no colon.
func (f *Fallback) Peer() string { return fallbackPeer + f.Name }

func recordName(id inventory.BlockID) string {
	h := sha256.Sum256([]byte(id))
	x := hex.EncodeToString(h[:])
	return fallbackRecords + x[:2] + "/" + x[2:] + ".json"
}

// memberNames are where the files of a block lie, in the block's order.
func (r fallbackRecord) memberNames() []string {
	names := make([]string, len(r.Members))
	for i, m := range r.Members {
		if r.Place == FallbackSpark {
			names[i] = sparkFallbackName(r.ID.Scope(), m.Name)
		} else {
			names[i] = fallbackBlocks + r.Origin + "/" + string(r.ID.Sibling(m.Name))
		}
	}
	return names
}

// sparkFallbackName is where Spark's FallbackStorage keeps a file of an application's shuffle (from 3.2 on):
// APPLICATION/SHUFFLE/HASH/NAME, HASH being JavaUtils.nonNegativeHash of the name, in decimal.
func sparkFallbackName(app, name string) string {
	return app + "/" + shuffleOf(name) + "/" + strconv.Itoa(int(inventory.JavaHash(name))) + "/" + name
}

// sparkFirstFallbackName is where Spark 3.1 kept it.
func sparkFirstFallbackName(app, name string) string { return app + "/" + shuffleOf(name) + "/" + name }

// shuffleOf is the number of the shuffle in the name of a map output's file.
func shuffleOf(name string) string { return strings.SplitN(name, "_", 3)[1] }

// place says which layout a block goes by. Spark keeps map outputs in its fallback storage and nothing else, and by the
// application's id, which not every directory of a block manager tells.
func (f *Fallback) place(b inventory.Block) string {
	if f.Layout == FallbackSpark && b.Layout == inventory.LayoutSpark && inventory.MapOutput.MatchString(b.ID.Name()) && inventory.ApplicationDir.MatchString(b.ID.Scope()) {
		return FallbackSpark
	}
	return FallbackBlocks
}

var sparkFallbackFile = regexp.MustCompile(`^(application_\d+_\d+|app-\d+-\d+|local-\d+)/\d+/(\d+/)?(` +
	`shuffle_\d+_\d+_\d+\.(data|index|checksum\.[A-Z0-9]+)|` +
	`\.shuffle_\d+_\d+_\d+\.(data|index)\.crc)$`) // which Hadoop puts beside each file in a directory (ChecksumFileSystem)

// FallbackFile reports whether a name in a fallback's storage is one that this package or Spark's fallback storage gives:
// what is named otherwise there is somebody else's.
func FallbackFile(name string) bool {
	return strings.HasPrefix(name, fallbackBlocks) || strings.HasPrefix(name, fallbackRecords) || sparkFallbackFile.MatchString(name)
}
