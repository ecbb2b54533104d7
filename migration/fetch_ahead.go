package migration

import (
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// missWorth is how many files are looked at ahead for one that memory lacks. To look at one that it has takes 5 us, and a disk 0.1 to 1 ms
// for one that it lacks, of which other lanes use the most.
const missWorth = 8

// fetchAhead has the disk asked for what follows in the batch (prefetch.go), as far as it lies on the disk that the lane is about to wait for, and while a
// fair part of it is missing: in a node's memory gaps lie scattered, and to look at a file costs as much as to send it. What it has
// looked at it leaves alone when the next block is missing.
func (l *lane) fetchAhead() {
	l.cold = true
	l.mu.Lock()
	rest := l.next
	l.mu.Unlock()
	rest = rest[max(0, len(rest)-l.ahead):]
	var scout inventory.FileReader
	defer scout.Leave()
	for looks := missWorth; len(rest) > 0 && looks > 0; rest = rest[1:] {
		e := rest[0]
		for i, m := range e.Members {
			if m.Root != inventory.InVault && m.Bytes > 0 && m.Bytes <= wire.ChunkBytes && *l.d.dirOf(e.Block, i) == l.fetched.dir {
				looks--
				if scout.FetchMissing(l.d.stores[e.ID.Store()], m) {
					looks += missWorth
				}
			}
		}
	}
	l.ahead = len(rest)
}
