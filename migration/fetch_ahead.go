package migration

import (
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// missWorth is how many files are looked at ahead for each that memory lacks. To look at a file that memory has takes 5 us. A disk takes
// 0.1 to 1 ms for a file that memory lacks, of which other lanes use the most.
const missWorth = 8

// fetchAhead asks the disk that the lane is about to wait for to read the files that follow in the batch (diskio/prefetch.go), while a
// fair part of them is missing from memory: there gaps lie scattered, and to look at a file costs as much as to send it. A file that it
// has looked at is left alone when the next block is missing.
func (l *lane) fetchAhead() {
	l.cold = true
	rest := l.books.notBegun()
	rest = rest[max(0, len(rest)-l.ahead):]
	var scout inventory.FileReader
	defer scout.Leave()
	for looks := missWorth; len(rest) > 0 && looks > 0; rest = rest[1:] {
		e := rest[0]
		for i, m := range e.Members {
			if m.Root != inventory.InVault && m.Bytes > 0 && m.Bytes <= wire.ChunkBytes && *l.source.dirOf(e.Block, i) == l.fetched.dir {
				looks--
				if scout.FetchMissing(l.source.stores[e.ID.Store()], m) {
					looks += missWorth
				}
			}
		}
	}
	l.ahead = len(rest)
}
