package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/dev/corpus"
)

// size describes the blocks of a corpus.
type size struct {
	name string
	n    int
	each int64 // bytes of a block; if most is set, the median
	most int64 // the largest block, if sizes are log-normal; 0: all blocks have one size
	all  int64 // bytes of all blocks, once the corpus is made
	cold bool  // none of it is in memory when a contender begins
}

// The corpora that the project has measured since its first prototypes, under the letters of that time.
var corpora = map[string]size{
	"a": {n: 20_000, each: 64 << 10},
	"b": {n: 2000, each: 640 << 10, most: 64 << 20},
	"c": {n: 8, each: 256 << 20},
	"d": {n: 200_000, each: 4 << 10},
}

// scaled has fewer blocks of a corpus that has many, and smaller blocks of one that has few.
func (s size) scaled(part float64) size {
	if s.n >= 100 {
		s.n = max(1, int(float64(s.n)*part))
	} else {
		s.each = max(1, int64(float64(s.each)*part))
	}
	return s
}

// make writes the corpus and notes how many bytes it has.
func (s *size) make(dir string) (c corpus.Corpus, err error) {
	if s.most > 0 {
		c, err = corpus.Skewed(dir, s.n, s.each, s.most, 1)
	} else {
		c, err = corpus.Even(dir, s.n, s.each, 1)
	}
	s.all = c.Bytes
	return c, err
}

func (s size) bytes() int64 { return s.all }

func (s size) String() string {
	each := fmt.Sprintf("%d KiB", s.each>>10)
	if s.each >= 1<<20 {
		each = fmt.Sprintf("%d MiB", s.each>>20)
	}
	if s.most > 0 {
		each = "log-normal, median " + each
	}
	return fmt.Sprintf("corpus %s: %d x %s", s.name, s.n, each)
}

// contender moves a source directory into a fresh target directory. move returns when the contender says that it is done.
type contender interface {
	name() string
	move(ctx context.Context, from source, into string) (outcome, error)
}

type source struct {
	dir   string
	files corpus.Corpus
	cold  bool
}

// outcome is one run of a contender. sent is the time until the contender said that it was done, durable the time until everything was on
// the disk. They are equal for a contender that says so only once everything is durable.
type outcome struct {
	sent, durable time.Duration
	cpu           time.Duration // user and system, of both sides
	told          time.Duration // until the command that gave the order came back
	ended         time.Duration // until the drain had looked at its stores again and found nothing new; 0 for others
	drain         time.Duration // by the manifest, from its start to its finish; 0 for others
	unpacking     *unpacking    // nil: nothing becomes files later
	rss           [2]int64      // peak bytes of the source and of the sink, 0 where not measured
}

// trial is one corpus with every round of every contender.
type trial struct {
	size     size
	names    []string
	outcomes map[string][]outcome // by the contender's name; one outcome a round
}

// ready prepares the machine for a run: the corpus is in the page cache, or, if cold, is not; and there is free memory that the hypervisor
// has given already.
func (s source) ready() error {
	if s.cold {
		err := claimMemory()
		unix.Sync() // else this contender would wait for what others wrote, and dirty pages would stay in memory
		return errors.Join(err, os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0))
	}
	err := errors.Join(warm(s.dir), claimMemory())
	unix.Sync()
	return err
}

// measure runs the contenders in turn; each round begins with another one.
func measure(ctx context.Context, g *ground, s size, contenders []contender, rounds int, progress io.Writer) (trial, error) {
	from := source{dir: filepath.Join(g.dir, "corpus-"+s.name), cold: s.cold}
	began := time.Now()
	var err error
	if from.files, err = s.make(from.dir); err != nil {
		return trial{}, err
	}
	defer os.RemoveAll(from.dir)
	fmt.Fprintf(progress, "%s: made in %.1fs\n", s, time.Since(began).Seconds())

	t := trial{size: s, outcomes: map[string][]outcome{}}
	for _, c := range contenders {
		t.names = append(t.names, c.name())
	}
	for round := range rounds {
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)]
			into, err := g.fresh()
			if err != nil {
				return t, err
			}
			if err := from.ready(); err != nil {
				return t, err
			}
			out, err := c.move(ctx, from, into)
			if err := errors.Join(err, g.empty(into)); err != nil {
				return t, fmt.Errorf("%s, round %d, %s: %w", s, round+1, c.name(), err)
			}
			t.outcomes[c.name()] = append(t.outcomes[c.name()], out)
			fmt.Fprintf(progress, "%s: round %d: %-18s %6.0f MiB/s durable, %5.2f CPU s/GiB, load %s\n", s, round+1, c.name(),
				perSecond(s, out.durable), perGiB(s, out.cpu), load())
		}
	}
	return t, nil
}

func perSecond(s size, took time.Duration) float64 {
	return float64(s.bytes()) / (1 << 20) / took.Seconds()
}

func perGiB(s size, cpu time.Duration) float64 {
	return cpu.Seconds() / (float64(s.bytes()) / (1 << 30))
}

// warm reads the corpus into the page cache, for every contender alike.
func warm(dir string) error {
	buf := make([]byte, 1<<20)
	return filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, buf)
		return err
	})
}

// claimed is more than a contender writes and needs besides, in bytes.
const claimed = 3 << 30

// claimMemory touches memory and frees it, so that every contender finds memory that the hypervisor has given already. To touch pages that
// the hypervisor was told were free costs more than all that is done with them (docs/benchmarks/transfers.md, "Traps").
func claimMemory() error {
	p, err := unix.Mmap(-1, 0, claimed, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	return os.NewSyscallError("munmap", unix.Munmap(p))
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}
