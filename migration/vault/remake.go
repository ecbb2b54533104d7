package vault

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Remade reports what was found when the catalog was made anew: the old one's ruin, or what a directory had.
type Remade struct {
	Ruin *catalog.Ruin // nil: this is about a directory

	Dir    string
	Found  inventory.Count
	Broken []Held // no longer whole
	Others int    // how many more are broken
}

// mostNamed bounds the list of broken blocks.
const mostNamed = 1000

// anySegments reports whether there may be segments in any of these directories. A disk that does not answer may have some.
func anySegments(dirs []string) bool {
	some, late := make(chan bool, len(dirs)), time.After(diskio.OpenPatience)
	for _, dir := range dirs {
		go func() {
			all, _ := filepath.Glob(filepath.Join(dir, "segments", "seg-*"))
			some <- len(all) > 0
		}()
	}
	for range dirs {
		select {
		case is := <-some:
			if is {
				return true
			}
		case <-late:
			return true
		}
	}
	return false
}

// numbersAside is how many segment numbers are left unused while directories are yet to be read: numbers that those may have
// must not come to mean other bytes.
const numbersAside = 1 << 20

// salvage reads a directory's segments into a catalog that was made anew.
func (v *Vault) salvage(dir string) error {
	entries, err := os.ReadDir(filepath.Join(dir, "segments"))
	if err != nil {
		return fmt.Errorf("the catalog was made anew and should learn what lies here (if nothing ever did: mkdir %s): %w", filepath.Join(dir, "segments"), err)
	}
	ends, err := v.Catalog.SegmentEnds()
	if err != nil {
		return err
	}
	report := Remade{Dir: dir}
	for _, e := range entries {
		no, ok := segmentNumber(e.Name())
		if !ok {
			continue
		}
		if end, taken := ends[no]; taken && end.At > 0 && cmp.Or(end.Dir, v.Dir) != dir {
			return fmt.Errorf("segment %d lies here and in %s", no, cmp.Or(end.Dir, v.Dir))
		}
		if err := v.salvageSegment(dir, no, &report); err != nil {
			return fmt.Errorf("read segment %d for the catalog: %w", no, err)
		}
	}
	err = v.Catalog.IsSalvaged(dir)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.remade = append(v.remade, report)
	return nil
}

// openFirst opens the directory that has the catalog. Where the catalog was made anew all of the directory's segments are read first, which
// may take hours. An agent that has not started carries nothing and hears no notice, so openFirst waits no longer than OpenPatience, and the
// directory is away until it has been read.
func (v *Vault) openFirst() error {
	d := v.dirs[0]
	unread, err := v.Catalog.ToSalvage(d.path)
	if err != nil || !unread {
		return cmp.Or(err, v.open(d))
	}
	d.looking, d.away = true, diskio.Away(fmt.Errorf("%s is being read for the new catalog", d.path))
	opened := make(chan error, 1)
	go func() { opened <- v.open(d) }()
	select {
	case err := <-opened:
		return err
	case <-time.After(diskio.OpenPatience):
		return nil
	}
}

// segmentNumber returns the number of the segment that has exactly this name: a copy of a segment beside it is none.
func segmentNumber(name string) (no uint32, ok bool) {
	n, err := strconv.ParseUint(strings.TrimPrefix(name, "seg-"), 10, 32)
	return uint32(n), err == nil && name == filepath.Base(SegmentFile("", uint32(n)))
}

func (v *Vault) salvageSegment(dir string, no uint32, report *Remade) error {
	var batch []catalog.Record
	flush := func() error {
		err := v.Catalog.Salvaged(batch)
		batch = batch[:0]
		return err
	}
	whole := func(r catalog.Record) error {
		report.Found = report.Found.Plus(inventory.Count{Blocks: 1, Bytes: r.Bytes()})
		if batch = append(batch, r); len(batch) < catalog.Batch {
			return nil
		}
		return flush()
	}
	broken := func(h Held) {
		if len(report.Broken) < mostNamed {
			report.Broken = append(report.Broken, h)
		} else {
			report.Others++
		}
	}
	s, err := salvage(SegmentFile(dir, no), no, whole, broken)
	if err = cmp.Or(err, flush()); err != nil {
		return err
	}
	end := catalog.End{At: s.end}
	if dir != v.Dir {
		end.Dir = dir
	}
	var spare []catalog.Record
	for _, g := range s.gaps {
		if g.At < end.At {
			spare = append(spare, catalog.Record{Segment: no, Offset: g.At, Length: g.Length})
		}
	}
	_, err = v.Catalog.Commit(nil, map[uint32]catalog.End{no: end}, spare)
	return err
}

// TakeRemade returns what was found since the last call, when the catalog was made anew.
func (v *Vault) TakeRemade() (all []Remade) {
	v.mu.Lock()
	defer v.mu.Unlock()
	all, v.remade = v.remade, nil
	return all
}
