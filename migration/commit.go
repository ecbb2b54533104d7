package migration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// committer makes landed blocks durable, many at a time: sync the bytes, publish the names (an index after all else),
// sync the directories, commit the catalog, and only then send the receipts. One commit is under way while the next
// batch fills.
type committer struct {
	vault  *Vault
	queue  chan []landed
	landed func([]Held) // told after each commit
}

const (
	// gather is how long a commit waits for company. A drain's last block is delayed by so much; in exchange a sync is
	// shared by all that arrived meanwhile (20 and 100 ms measured the same; see docs/benchmarks.md).
	gather = 20 * time.Millisecond
	// gatherBytes is company enough.
	gatherBytes = 32 << 20
	// syncAtOnce is how many files or directories are synced one by one; more than that, and syncing the whole file
	// system is cheaper (272 us a file against 32-62 us).
	syncAtOnce = 16
)

func newCommitter(v *Vault, told func([]Held)) *committer {
	return &committer{vault: v, queue: make(chan []landed, 64), landed: told}
}

// run commits until ctx ends and then once more what is queued. Nobody may submit after ctx has ended.
func (c *committer) run(ctx context.Context) error {
	for {
		var batch []landed
		select {
		case b := <-c.queue:
			batch = b
		case <-ctx.Done():
			select {
			case b := <-c.queue:
				c.commit(b)
				continue
			default:
				return nil
			}
		}
		timer := time.NewTimer(gather)
	more:
		for bytes := sizeOf(batch); bytes < gatherBytes; {
			select {
			case b := <-c.queue:
				batch = append(batch, b...)
				bytes += sizeOf(b)
			case <-timer.C:
				break more
			case <-ctx.Done():
				break more
			}
		}
		timer.Stop()
		c.commit(batch)
	}
}

func sizeOf(batch []landed) (n int64) {
	for _, l := range batch {
		n += l.bytes()
	}
	return n
}

// submit hands over blocks whose bytes have reached the kernel.
func (c *committer) submit(batch []landed) {
	for _, l := range batch {
		if l.segment != nil {
			c.vault.use(l.segment)
		}
	}
	c.queue <- batch
}

func (c *committer) commit(batch []landed) {
	held, err := c.durable(batch)
	answers := map[*landed]verdict{}
	for i := range batch {
		l := &batch[i]
		v := verdict{Transfer: l.transfer}
		if err != nil {
			v.Code, v.Reason = verdictFailed, err.Error()
		}
		answers[l] = v
		if l.segment != nil {
			c.vault.done(l.segment)
		}
	}
	if err == nil && len(held) > 0 && c.landed != nil {
		c.landed(held)
	}
	for i := range batch {
		batch[i].reply(answers[&batch[i]])
	}
}

// durable returns what is new here once all of the batch would survive a power cut.
func (c *committer) durable(batch []landed) ([]Held, error) {
	segments := map[*segment]bool{}
	stores := map[*Store][]stagedFile{}
	ends := map[uint32]int64{}
	var records []record
	var held []Held
	for _, l := range batch {
		switch {
		case l.already:
			continue
		case l.segment != nil:
			segments[l.segment] = true
			ends[l.segment.no] = max(ends[l.segment.no], l.Offset+l.Length)
		default:
			stores[l.store] = append(stores[l.store], l.files...)
		}
		records = append(records, l.record)
		held = append(held, l.held())
	}
	if len(records) == 0 {
		return nil, nil
	}
	var g errgroup.Group
	for s := range segments {
		g.Go(func() error {
			if err := unix.Fdatasync(int(s.f.Fd())); err != nil {
				return fmt.Errorf("sync segment: %w", err)
			}
			return nil
		})
	}
	for s, files := range stores {
		g.Go(func() error { return s.publish(files) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return held, c.vault.catalog.commit(records, ends)
}

// publish gives staged files their names, durably: bytes first, then the names, an index's name last.
func (s *Store) publish(files []stagedFile) error {
	var first, last []stagedFile
	for _, f := range files {
		if f.publish {
			last = append(last, f)
		} else {
			first = append(first, f)
		}
	}
	if err := s.syncAll(files, func(f stagedFile) string { return f.from }); err != nil {
		return err
	}
	for _, part := range [][]stagedFile{first, last} {
		for _, f := range part {
			if err := s.mkdir(f.root, path.Dir(f.to)); err != nil {
				return err
			}
			if err := s.roots[f.root].Rename(f.from, f.to); err != nil {
				return err
			}
		}
		if err := s.syncAll(part, func(f stagedFile) string { return path.Dir(f.to) }); err != nil {
			return err
		}
	}
	return nil
}

// syncAll syncs the distinct paths of some files: each by itself when they are few, else the file systems they are on.
func (s *Store) syncAll(files []stagedFile, name func(stagedFile) string) error {
	for i, root := range s.roots {
		distinct := map[string]bool{}
		for _, f := range files {
			if f.root != i {
				continue
			}
			// A new directory's own name is in its parents: they are synced with it.
			for p := name(f); p != "." && !distinct[p]; p = path.Dir(p) {
				distinct[p] = true
			}
			distinct["."] = true
		}
		if len(distinct) == 0 {
			continue
		}
		if len(distinct) > syncAtOnce {
			if err := syncFileSystem(root); err != nil {
				return fmt.Errorf("sync %s: %w", s.Paths[i], err)
			}
			continue
		}
		for p := range distinct {
			f, err := root.Open(p)
			if err != nil {
				return err
			}
			if err := errors.Join(f.Sync(), f.Close()); err != nil {
				return fmt.Errorf("sync %s: %w", path.Join(s.Paths[i], p), err)
			}
		}
	}
	return nil
}

func syncFileSystem(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
