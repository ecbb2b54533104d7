package inventory

import "fmt"

// TagPrefix begins the ETag of a file that nothing vouches for but the file system. What follows is when its inode changed,
// which stays behind when the block moves.
func TagPrefix(bytes, modified int64) string { return fmt.Sprintf(`"file-%x-%x-`, bytes, modified) }

// Tag names a version wherever it has moved: what its own ETag at its source began with, if that was one file; of several, their size
// and the newest one's time, in Unix nanoseconds.
func Tag(bytes, modified int64) string { return TagPrefix(bytes, modified) + `"` }

// Tag names the block's version.
func (b Block) Tag() string { return Tag(b.Bytes(), b.Modified().UnixNano()) }
