package receiver

import (
	"fmt"
	"sync"

	"github.com/lifeboat/lifeboat/config"
)

// aloneShare is the part of what a node takes, in streams and in bytes of its quota, that is kept for senders whose
// coordinator does not answer: one in so many. Nobody spreads those over the fleet, and when a whole pool goes at once, the
// senders that are spread would otherwise have filled every node before them.
const aloneShare = 5

// wordShare is the part of what is left, one in so many, that is set aside for one node's blocks by its word alone, and the part of a
// larger block that has to come before all of it has its room. Else whoever has one node's key holds the room of all peers with a
// chunk now and then. It goes by bytes and not by how fast they come: a slow link or a disk that hangs costs nothing.
const wordShare = 4

// Budget is what this node takes from others in all, beside what its disks allow.
type Budget struct {
	Streams int   // at once
	bytes   int64 // at rest and on their way; 0: as many as the disks hold

	mu       sync.Mutex // guards what follows
	open     map[string]int
	serving  int
	promised int64
	word     map[string]int64 // by node: what is set aside for blocks that it announced
}

// perSender is how many streams one sender may have: with half of them, two always find a way in.
func (b *Budget) perSender() int { return max(1, b.Streams/2) }

// Enter counts a stream in, or says why not.
func (b *Budget) Enter(node string, alone bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := b.Streams
	if !alone {
		most -= b.Streams / aloneShare
	}
	switch {
	case b.serving >= most:
		return fmt.Errorf("busy: %d streams are being served, at most %d; try elsewhere", b.serving, most)
	case b.open[node] >= b.perSender():
		return fmt.Errorf("busy: %d streams of %s are being served, at most %d of one node; try elsewhere", b.open[node], node, b.perSender())
	}
	b.serving++
	if b.open == nil {
		b.open = map[string]int{}
	}
	b.open[node]++
	return nil
}

// Shared reports whether others are served beside that node.
func (b *Budget) Shared(node string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.serving > b.open[node]
}

func (b *Budget) Leave(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.serving--
	if b.open[node]--; b.open[node] == 0 {
		delete(b.open, node)
	}
}

// left is how much of the quota may still be promised, beside what rests here; room where there is none.
func (b *Budget) left(rests, room int64, alone bool) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leftLocked(rests, room, alone)
}

func (b *Budget) leftLocked(rests, room int64, alone bool) int64 {
	if b.bytes == 0 {
		return room
	}
	most := b.bytes
	if !alone {
		most -= b.bytes / aloneShare
	}
	return max(0, min(room, most-rests-b.promised))
}

// ByWord says how much of a block, of what is left, is set aside when it is announced: all, or no more than a small one takes. It counts
// against that node until over is called.
func (b *Budget) ByWord(node string, bytes, left int64) (first int64, over func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if had := b.word[node]; had+bytes > (left+had)/wordShare {
		return allotBytes, func() {}
	}
	if b.word == nil {
		b.word = map[string]int64{}
	}
	b.word[node] += bytes
	return bytes, sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.word[node] -= bytes; b.word[node] == 0 {
			delete(b.word, node)
		}
	})
}

// promise sets the first of so many bytes of the quota aside, until release. Where there is none it costs nothing.
func (b *Budget) promise(bytes, first, rests int64, alone bool) (release func(), err error) {
	if b.bytes == 0 {
		return func() {}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if left := b.leftLocked(rests, bytes, alone); left < bytes {
		kept := ""
		if !alone {
			kept = fmt.Sprintf(", but for %s that are kept for drains without a coordinator", config.Bytes(b.bytes/aloneShare).Rough())
		}
		return nil, fmt.Errorf("the quota of %s is used up%s: %w", config.Bytes(b.bytes).Rough(), kept, &FullError{NeedBytes: bytes, HasBytes: left})
	}
	first = min(first, bytes)
	b.promised += first
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.promised -= first
	}), nil
}

// Room is what there is room for in all, and how large one block may be: it lies on one file system.
type Room struct{ Bytes, LargestBytes int64 }
