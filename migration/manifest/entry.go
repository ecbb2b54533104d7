package manifest

import (
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Outcome is what became of a block in a drain.
type Outcome string

const (
	Moved   Outcome = "moved"   // durable at the peer named
	Lost    Outcome = "lost"    // it was ours to carry and no peer has it
	Skipped Outcome = "skipped" // it was not ours to carry: unfinished, not a block, or gone by itself
)

// Entry is one line of a manifest.
type Entry struct {
	ID      string  `json:"id"`
	Bytes   int64   `json:"bytes"`
	Outcome Outcome `json:"outcome"`
	Peer    string  `json:"peer,omitempty"`
	Reason  string  `json:"reason,omitempty"`

	// Version stands for the content that was moved (sizes and modification times), so that a drain resumed after a
	// crash sends what changed since and nothing else. See AppendVersion.
	Version string `json:"version,omitempty"`
}

// Summary is a manifest without its entries.
type Summary struct {
	Started  time.Time
	Finished time.Time
	Moved    inventory.Count
	Lost     inventory.Count
	Skipped  inventory.Count
}

// Total counts every block that the drain met.
func (s Summary) Total() inventory.Count {
	return inventory.Count{Blocks: s.Moved.Blocks + s.Lost.Blocks + s.Skipped.Blocks, Bytes: s.Moved.Bytes + s.Lost.Bytes + s.Skipped.Bytes}
}
