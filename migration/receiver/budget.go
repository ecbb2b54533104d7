package receiver

import (
	"fmt"
	"sync"

	"github.com/lifeboat/lifeboat/config"
)

// aloneShare: one part in so many of the streams and of the quota is kept for senders whose coordinator does not answer.
// Nobody spreads those senders over the fleet; when a whole pool goes at once, the senders that a coordinator spreads would
// otherwise have filled every node before them.
const aloneShare = 5

// wordShare: at most one part in so many of the room that is left is set aside for one node's blocks when they are only announced. A
// larger block gets the rest of its room as its bytes come: all of it once that part of the block is here. Otherwise a thief of one
// node's key could hold the room of all peers by sending a chunk now and then. The rule counts bytes and not their speed, so a slow
// link or a disk that hangs loses nothing by it.
const wordShare = 4

// Budget bounds what this node takes from all others, beside what its disks allow.
type Budget struct {
	Streams int   // served at once
	bytes   int64 // at rest and on their way; 0: only the disks bound them

	mu       sync.Mutex // guards what follows
	open     map[string]int
	serving  int
	promised int64
	word     map[string]int64 // by node: bytes that were set aside when it announced blocks
}

// perSender is how many streams one sender may have: half of them, so that a second sender always finds one.
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

// Shared reports whether other nodes are served beside that one.
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

// left returns how much of the quota may still be promised, given that so much rests here; room if there is no quota.
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

// ByWord returns how many bytes of a block are set aside when it is announced, with so much room left: all of it, or if that exceeds the
// node's share, allotBytes. What it sets aside counts against that node until over is called.
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

// promise sets the first bytes of a block aside from the quota until release is called. Without a quota it does
// nothing.
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

// Room is how many bytes there is room for in all, and how large one block may be: a block lies on one file system.
type Room struct{ Bytes, LargestBytes int64 }
