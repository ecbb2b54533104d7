package corpus

import (
	"encoding/binary"
	"fmt"
	"hash/adler32"
	"io"
	"math/rand/v2"
	"path/filepath"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Spark fills the local directories of one executor: map outputs of two shuffles (data, index and checksums, in the formats
// of IndexShuffleBlockResolver and ShuffleChecksumHelper in Spark's core), a cached partition for every fourth of them, and
// a few files that are not committed. The blocks have about that many bytes together; their sizes are spread log-normally.
// Of four maps or more, the last has no output: an index without data, as Spark leaves it.
func Spark(paths []string, maps int, bytes int64, partitions int, seed uint64) (Corpus, error) {
	if err := check("map outputs", maps, bytes); err != nil {
		return Corpus{}, err
	}
	if len(paths) < 1 || partitions < 1 {
		return Corpus{}, fmt.Errorf("make map outputs: want at least one directory and one partition, not %d and %d", len(paths), partitions)
	}
	e := newExecutor(paths, partitions, seed)
	c, err := e.fill(maps, bytes, seed)
	if err != nil {
		return Corpus{}, fmt.Errorf("make map outputs in %s: %w", paths[0], err)
	}
	return c, nil
}

// executor has one blockmgr directory in each local directory, each under a name of its own.
type executor struct {
	managers   []string // full paths
	partitions int
	rng        *rand.Rand // for names
}

func newExecutor(paths []string, partitions int, seed uint64) *executor {
	e := &executor{partitions: partitions, rng: rand.New(rand.NewPCG(seed, 'e'))}
	for _, p := range paths {
		e.managers = append(e.managers, filepath.Join(p, "blockmgr-"+e.uuid()))
	}
	return e
}

// uuid returns a random UUID in the form that Java prints.
func (e *executor) uuid() string {
	a, b := e.rng.Uint64(), e.rng.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", uint32(a>>32), uint16(a>>16), a&0xfff, b>>48&0xfff, b&0xffffffffffff)
}

// place returns where the executor keeps a file: its path, and the scope of a block that is named after that file.
func (e *executor) place(name string) (path, scope string) {
	dir, sub := inventory.SparkPlace(name, len(e.managers))
	return filepath.Join(e.managers[dir], sub, name), filepath.Base(e.managers[dir])
}

func (e *executor) fill(maps int, bytes int64, seed uint64) (Corpus, error) {
	var dirs []string
	for _, m := range e.managers {
		for sub := range fanOut { // spark.diskStore.subDirectories
			dirs = append(dirs, filepath.Join(m, fmt.Sprintf("%02x", sub)))
		}
	}
	if err := makeDirs(dirs); err != nil {
		return Corpus{}, err
	}
	cached := (maps + 3) / 4
	outputs := maps
	if maps >= 4 {
		outputs--
	}
	// Indexes and checksums count. But data has at least a byte for each partition, even if fewer bytes were asked for.
	side := int64(maps)*int64(8*(e.partitions+1)) + int64(outputs)*int64(8*e.partitions)
	share := sizes(outputs+cached, max(bytes-side, int64((outputs+cached)*e.partitions)), seed)
	var jobs []job
	for m := range maps {
		size := int64(0)
		if m < outputs {
			size = share[m]
		}
		base := fmt.Sprintf("shuffle_%d_%d_0", m*2/maps, m) // map ids are ids of tasks: no two shuffles share one
		jobs = append(jobs, func(p *pen) ([]File, error) { return e.mapOutput(p, base, size) })
	}
	for i := range cached {
		name, size := fmt.Sprintf("rdd_%d_%d", 5+i%2, i), share[outputs+i]
		jobs = append(jobs, func(p *pen) ([]File, error) {
			path, scope := e.place(name)
			f, err := p.member(path, scope, name, name, func(w io.Writer) error { return p.random(w, size) })
			return []File{f}, err
		})
	}
	pool := newPool(seed)
	c, err := run(jobs, pool, seed)
	if err != nil {
		return Corpus{}, err
	}
	c.Left, err = e.leftovers(newPen(pool), maps, seed)
	return c, err
}

func (p *pen) member(path, scope, block, name string, fill func(io.Writer) error) (File, error) {
	n, sum, err := p.file(path, fill)
	return File{Scope: scope, Block: block, Name: name, Bytes: n, SHA256: sum}, err
}

// mapOutput writes the files of one map task. The scope of all of them is that of the index.
func (e *executor) mapOutput(p *pen, base string, bytes int64) ([]File, error) {
	indexPath, scope := e.place(base + ".index")
	offsets := e.cut(p.rng, bytes)
	var files []File
	if bytes > 0 {
		var sums []byte
		path, _ := e.place(base + ".data")
		data, err := p.member(path, scope, base, base+".data", func(w io.Writer) error {
			for i, from := range offsets[:e.partitions] {
				sum := adler32.New() // of no bytes: 1, as Spark writes for an empty partition
				if size := offsets[i+1] - from; size > 0 {
					if err := p.random(io.MultiWriter(w, sum), size); err != nil {
						return err
					}
				}
				sums = binary.BigEndian.AppendUint64(sums, uint64(sum.Sum32()))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		name := base + ".checksum.ADLER32"
		path, _ = e.place(name)
		checksums, err := p.member(path, scope, base, name, func(w io.Writer) error { _, err := w.Write(sums); return err })
		if err != nil {
			return nil, err
		}
		files = []File{data, checksums}
	}
	index, err := p.member(indexPath, scope, base, base+".index", func(w io.Writer) error { return binary.Write(w, binary.BigEndian, offsets) })
	return append(files, index), err
}

// cut divides bytes into partitions, some of them empty. It returns the offset at which each begins, and the end of the
// last.
func (e *executor) cut(rng *rand.Rand, bytes int64) []int64 {
	weights, sum := make([]float64, e.partitions), 0.0
	for i := range weights {
		if i == 0 || rng.IntN(8) != 0 { // an eighth of the reducers get nothing from this map
			weights[i] = rng.ExpFloat64()
			sum += weights[i]
		}
	}
	offsets := make([]int64, e.partitions+1)
	upTo := 0.0
	for i, w := range weights {
		upTo += w
		offsets[i+1] = int64(upTo / sum * float64(bytes)) // the last offset is bytes exactly: upTo and sum add the same weights in the same order
	}
	return offsets
}

// leftovers writes what a killed executor leaves behind: temporary files, an index whose data was not yet renamed into
// place, data whose index was not, a broadcast's piece. It returns how many of them a scan must name.
func (e *executor) leftovers(p *pen, maps int, seed uint64) (int, error) {
	p.reseed(seed, 'l')
	next := func(i int, ext string) string { return fmt.Sprintf("shuffle_1_%d_0.%s", maps+i, ext) }
	offsets := e.cut(p.rng, scrapBytes)
	index := func(w io.Writer) error { return binary.Write(w, binary.BigEndian, offsets) }
	data := func(w io.Writer) error { return p.random(w, scrapBytes) }
	short := func(w io.Writer) error { return p.random(w, scrapBytes/2) }
	left := []struct {
		name string
		fill func(io.Writer) error
	}{
		{"temp_shuffle_" + e.uuid(), data},
		{"temp_local_" + e.uuid(), data},
		{next(0, "index"), index},
		{next(0, "data") + "." + e.uuid(), data},
		{next(1, "data"), data},
		{next(2, "index"), index},
		{"broadcast_7_piece0", data},
	}
	for _, l := range left {
		path, _ := e.place(l.name)
		if _, _, err := p.file(path, l.fill); err != nil {
			return 0, err
		}
	}
	// The data of the third output is half written. A scan names its index, and does not name the data beside it.
	path, _ := e.place(next(2, "data"))
	_, _, err := p.file(path, short)
	return len(left), err
}
