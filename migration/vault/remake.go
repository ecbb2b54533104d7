package vault

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
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

	Unread map[uint32]error // segments that the disk did not give everywhere
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

// salvage reads a directory's segments into a catalog that was made anew: all of them, or those that could not be read before. A segment
// that cannot be read everywhere serves what was found, and is read again at the next start. A directory of which nothing can be read is
// away.
func (v *Vault) salvage(dir string, all bool, some []uint32) error {
	segments, err := v.toRead(dir, all, some)
	if err != nil {
		return err
	}
	report := Remade{Dir: dir, Unread: map[uint32]error{}}
	for _, no := range segments {
		if err := v.salvageSegment(dir, no, &report); err != nil {
			return fmt.Errorf("read segment %d for the catalog: %w", no, err)
		}
	}
	unread := slices.Sorted(maps.Keys(report.Unread))
	if all && len(unread) > 0 && report.Found.Blocks == 0 {
		return fmt.Errorf("read segments for the catalog: %w", report.Unread[unread[0]])
	}
	if err := v.Catalog.IsSalvaged(dir, unread); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, no := range unread {
		v.unread[no] = true
	}
	v.remade = append(v.remade, report)
	return nil
}

// toRead returns the segments in a directory that are to be read. It notes where they lie before any block of them is known: a block
// whose segment is not there counts as broken, and their numbers must not be given to others.
func (v *Vault) toRead(dir string, all bool, some []uint32) (segments []uint32, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, "segments"))
	if err != nil {
		return nil, fmt.Errorf("the catalog was made anew and should learn what lies here (if nothing ever did: mkdir %s): %w", filepath.Join(dir, "segments"), err)
	}
	ends, err := v.Catalog.SegmentEnds()
	if err != nil {
		return nil, err
	}
	begun := map[uint32]catalog.End{}
	for _, e := range entries {
		no, ok := segmentNumber(e.Name())
		if !ok || !all && !slices.Contains(some, no) {
			continue
		}
		if at := v.settle(no, dir, ends[no]); at != dir {
			return nil, fmt.Errorf("segment %d lies here and in %s: one of the two is another vault's, move that away", no, at)
		}
		if ends[no].At == 0 {
			begun[no] = v.endIn(dir, 0)
		}
		segments = append(segments, no)
	}
	_, err = v.Catalog.Commit(nil, begun, nil)
	return segments, err
}

// settle notes that a segment lies in a directory, and returns the directory that it lies in: another one may have a segment of that number.
func (v *Vault) settle(no uint32, dir string, end catalog.End) (at string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = max(v.last, no)
	if is := v.homes[no]; is.dir != dir && (is.seen || end.At > 0) {
		return cmp.Or(is.dir, v.Dir)
	}
	v.homes[no] = home{dir, true}
	return dir
}

// openFirst opens the directory that has the catalog. Where the catalog was made anew all of the directory's segments are read first, which
// may take hours. An agent that has not started carries nothing and hears no notice, so openFirst waits no longer than OpenPatience, and the
// directory is away until it has been read.
func (v *Vault) openFirst() error {
	d := v.dirs[0]
	all, some, err := v.Catalog.ToSalvage(d.path)
	if err != nil || !all && len(some) == 0 {
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
	var unkept error
	flush := func() error {
		unkept = v.Catalog.Salvaged(batch)
		batch = batch[:0]
		return unkept
	}
	whole := func(r catalog.Record) error {
		if v.Catalog.Hole(no, r.Offset) > r.Offset {
			return nil // it was found before, and has been removed since
		}
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
	if unkept == nil {
		err = cmp.Or(flush(), err)
	}
	if unkept == nil && s != nil && diskio.IsFault(err) {
		report.Unread[no], err = err, nil
		s.end, s.gaps = s.size, nil // what was not read is neither cut off nor given back
	}
	if err != nil {
		return err
	}
	end := v.endIn(dir, s.end)
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
