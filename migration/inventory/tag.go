package inventory

import "fmt"

// TagPrefix begins the ETag of a file that only the file system vouches for. Behind it comes when the file's inode changed,
// which does not move with the block.
func TagPrefix(bytes, modified int64) string { return fmt.Sprintf(`"file-%x-%x-`, bytes, modified) }

// Tag names a version of a block wherever it has moved. For a block of one file it is how the file's ETag began at its source; for a
// block of several it has their size and the newest one's time. modified is in Unix nanoseconds.
func Tag(bytes, modified int64) string { return TagPrefix(bytes, modified) + `"` }

// Tag names the block's version.
func (b Block) Tag() string { return Tag(b.Bytes(), b.Modified().UnixNano()) }
