package corpus

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path"
	"path/filepath"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Files fills the directory of a store of layout files with n blocks of that many bytes together, their sizes spread
// log-normally, and with a few unfinished files.
func Files(dir string, n int, bytes int64, seed uint64) (Corpus, error) {
	if err := check("files", n, bytes); err != nil {
		return Corpus{}, err
	}
	pool := newPool(seed)
	c, err := files(dir, sizes(n, bytes, seed), pool, seed)
	if err != nil {
		return Corpus{}, fmt.Errorf("make files in %s: %w", dir, err)
	}
	left := []string{"00/entry-000000.bin.tmp", "0a/entry-999999.bin.part", ".tmp-entry", "1b/entry-000001.bin.inprogress"}
	if err := scraps(dir, left, pool, seed); err != nil {
		return Corpus{}, fmt.Errorf("make files in %s: %w", dir, err)
	}
	c.Left = len(left)
	return c, nil
}

// Even fills the directory with n blocks of one size and nothing else, for measuring transfers.
func Even(dir string, n int, each int64, seed uint64) (Corpus, error) {
	if err := check("files", n, int64(n)*each); err != nil {
		return Corpus{}, err
	}
	all := make([]int64, n)
	for i := range all {
		all[i] = each
	}
	c, err := files(dir, all, newPool(seed), seed)
	if err != nil {
		return Corpus{}, fmt.Errorf("make files in %s: %w", dir, err)
	}
	return c, nil
}

// Skewed fills the directory with n blocks of log-normal sizes around a median, none larger than most, and nothing else.
func Skewed(dir string, n int, median, most int64, seed uint64) (Corpus, error) {
	if err := check("files", n, int64(n)*median); err != nil {
		return Corpus{}, err
	}
	rng := rand.New(rand.NewPCG(seed, 'z'))
	all := make([]int64, n)
	for i := range all {
		all[i] = min(most, max(1, int64(float64(median)*math.Exp(spread*rng.NormFloat64()))))
	}
	c, err := files(dir, all, newPool(seed), seed)
	if err != nil {
		return Corpus{}, fmt.Errorf("make files in %s: %w", dir, err)
	}
	return c, nil
}

// fanOut is how many directories the files are spread over, as most caches do.
const fanOut = 64

func files(dir string, sizes []int64, pool pool, seed uint64) (Corpus, error) {
	var dirs []string
	for i := range fanOut {
		dirs = append(dirs, filepath.Join(dir, fmt.Sprintf("%02x", i)))
	}
	if err := makeDirs(dirs); err != nil {
		return Corpus{}, err
	}
	jobs := make([]job, len(sizes))
	for i, size := range sizes {
		jobs[i] = func(p *pen) ([]File, error) {
			base := fmt.Sprintf("entry-%06d.bin", i)
			_, sub := inventory.SparkPlace(base, 1)
			name := path.Join(sub, base)
			n, sum, err := p.file(filepath.Join(dir, name), func(w io.Writer) error { return p.random(w, size) })
			return []File{{Scope: "-", Block: name, Name: name, Bytes: n, SHA256: sum}}, err
		}
	}
	return run(jobs, pool, seed)
}

// scrapBytes is the size of a leftover: enough to be missed when it is counted by mistake.
const scrapBytes = 777

// scraps writes files that nobody finished.
func scraps(dir string, names []string, pool pool, seed uint64) error {
	p := newPen(pool)
	p.reseed(seed, 's')
	for _, name := range names {
		at := filepath.Join(dir, name)
		if err := makeDirs([]string{filepath.Dir(at)}); err != nil {
			return err
		}
		if _, _, err := p.file(at, func(w io.Writer) error { return p.random(w, scrapBytes) }); err != nil {
			return err
		}
	}
	return nil
}
