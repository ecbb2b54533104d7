package corpus

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Corpus is the account of the files that were made.
type Corpus struct {
	Files  []File // of all blocks, in the order in which the seed planned them
	Blocks int
	Bytes  int64
	Left   int // leftover files beside the blocks, which a scan must leave alone
}

// File is one committed file: a block, or a member of one.
type File struct {
	Scope  string
	Block  string // name of the block that the file belongs to; equal to Name for a block of one file
	Name   string
	Bytes  int64
	SHA256 [32]byte
}

// ID is the file's id for `lifeboat get`, if the file is in a store of that name.
func (f File) ID(store string) inventory.BlockID {
	return inventory.BlockID(store + "/" + f.Scope + "/" + f.Name)
}

// BlockID is the block that the file is carried with.
func (f File) BlockID(store string) inventory.BlockID {
	return inventory.BlockID(store + "/" + f.Scope + "/" + f.Block)
}

// spread is the sigma of the sizes' log-normal distribution: with 1, the largest of a thousand blocks is some twenty
// times the median, about what shuffles and caches look like.
const spread = 1

// sizes divides bytes among n blocks, log-normally and without a remainder.
func sizes(n int, bytes int64, seed uint64) []int64 {
	rng := rand.New(rand.NewPCG(seed, 'z'))
	weights, sum := make([]float64, n), 0.0
	for i := range weights {
		weights[i] = math.Exp(spread * rng.NormFloat64())
		sum += weights[i]
	}
	all := make([]int64, n)
	left := bytes - int64(n) // each gets a byte at least
	for i, w := range weights {
		all[i] = 1 + int64(w/sum*float64(bytes-int64(n)))
		left -= all[i] - 1
	}
	all[n-1] += left // what rounding down has left over: fewer than n bytes
	return all
}

// job writes the files of one block.
type job func(p *pen) ([]File, error)

// run runs the jobs on all cores. What a job writes depends on the seed and the job's number alone.
func run(jobs []job, shared pool, seed uint64) (Corpus, error) {
	done := make([][]File, len(jobs))
	workers := min(runtime.GOMAXPROCS(0), len(jobs))
	g, ctx := errgroup.WithContext(context.Background())
	for w := range workers {
		g.Go(func() error {
			p := newPen(shared)
			for i := w; i < len(jobs) && ctx.Err() == nil; i += workers {
				p.reseed(seed, uint64(i))
				files, err := jobs[i](p)
				if err != nil {
					return err
				}
				done[i] = files
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return Corpus{}, err
	}
	c := Corpus{Blocks: len(jobs)}
	for _, files := range done {
		for _, f := range files {
			c.Bytes += f.Bytes
		}
		c.Files = append(c.Files, files...)
	}
	return c, nil
}

// check refuses what cannot be made.
func check(what string, n int, bytes int64) error {
	return cmp.Or(
		when(n < 1, "make %s: want at least one, not %d", what, n),
		when(bytes < int64(n), "make %d %s: %d bytes are not one for each", n, what, bytes),
	)
}

func when(wrong bool, format string, args ...any) error {
	if wrong {
		return fmt.Errorf(format, args...)
	}
	return nil
}

// makeDirs makes all directories at once, so that no file has to look whether its directory is there.
func makeDirs(paths []string) error {
	for _, p := range paths {
		if err := os.MkdirAll(p, 0o755); err != nil {
			return err
		}
	}
	return nil
}
