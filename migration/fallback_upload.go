package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// upload is one block on its way to the fallback.
type upload struct {
	to   *fallback
	work diskio.Work // on this node's disks
	sent int64       // bytes that were not there already

	bytes  int64
	unsent int64 // its part of fallback.begun, guarded with it
	gone   int64 // what the storage has got rid of, guarded likewise
	going  bool  // it has begun to send; likewise

	stuck  chan struct{}
	hung   string
	gaveUp sync.Once

	mu    sync.Mutex
	e     plan.Entry
	holds bool
}

func (u *upload) busy(now time.Time) (string, time.Duration, bool) { return u.work.On(now) }

// leaves says that so many bytes of what was begun have left, or are not to.
func (u *upload) leaves(bytes int64) {
	f := u.to
	f.mu.Lock()
	defer f.mu.Unlock()
	bytes = min(bytes, u.unsent)
	u.unsent -= bytes
	f.begun -= bytes
}

func (u *upload) giveUp(dir string) {
	u.gaveUp.Do(func() {
		u.hung = dir
		close(u.stuck)
	})
}

// forget takes the block off the books; false when somebody else did.
func (u *upload) forget() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	held := u.holds
	u.holds = false
	return held
}

func (u *upload) returnInflight(_ context.Context, err error) {
	if u.forget() {
		u.to.plan.GiveBack(u.e, 0, fmt.Sprintf("sent to %s: %v", u.to.state.Node, err))
	}
}

const (
	// staleThere is the age up to which a copy in the fallback stands for a block that a drain moves now. Where old copies are removed from
	// the fallback, that is after a day at the least (fallback.keep), and what is moved now has to last.
	staleThere = 12 * time.Hour
	// recordGrace is how long after the end of sending the record of a block that was sent whole by then may follow: the record is to the
	// fallback what a receipt is to a peer. The storage's time to answer (1.5 s) is counted from there on, and ends with receiptGrace.
	recordGrace = receiptGrace - 1500*time.Millisecond
	// rivalPatience is how long a node that hands on another's block waits for the record of what somebody else has put under its names:
	// that node itself, with a newer version, or a third one. Without a record by then, whoever put it was killed.
	rivalPatience = time.Second
)

// save makes the block durable in the fallback. Where another node puts a block of that id there at the same time, what it put decides.
func (u *upload) save(ctx context.Context) error {
	late, stop := linger(ctx, recordGrace)
	defer stop()
	err := u.put(ctx, late, u.e.Met().Attempts == 0)
	if errors.Is(err, fs.ErrExist) {
		u.sent = 0
		err = u.put(ctx, late, false)
	}
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("somebody else put a block of that id there at the same time: %w", err)
	}
	return err
}

// put is one try to save. A block that is there already is not sent again, unless it may soon be too old to stay; one of other content from
// another node stays, and ours is refused as a peer would refuse it. With yields, its error is fs.ErrExist where somebody else is putting a
// block that ours might spoil.
func (u *upload) put(ctx, late context.Context, yields bool) error {
	f := u.to
	ours := lastresort.Record{ID: u.e.ID, Kind: u.e.Kind, Layout: u.e.Layout, Place: f.Place(u.e.Block), Origin: f.source.origin(&u.e.Block), Modified: u.e.Modified().UTC()}
	if ours.Origin == "" {
		ours.Origin = f.source.node
	}
	answered := f.await(0)
	there, err := f.Record(ctx, u.e.ID)
	answered()
	fresh, replaces := errors.Is(err, fs.ErrNotExist), false
	switch {
	case err == nil:
		same, since, err := u.same(ctx, there, ours.Origin)
		if same && err == nil {
			since, err = f.RecordSince(ctx, there, since)
		}
		if err != nil || same && time.Since(since) < staleThere {
			return err
		}
		if same { // where it lies, whoever put it there
			ours.Place, ours.Origin = there.Place, there.Origin
			break
		}
		replaces = true
		if there.Origin != ours.Origin {
			return fmt.Errorf("%w, of other content, from %s", catalog.ErrConflict, there.Origin)
		}
		if ours.Origin != f.source.node && there.Modified.After(ours.Modified) { // as at a peer: see ErrSuperseded
			if whole, _, err := f.Whole(ctx, there); whole || err != nil {
				return err
			}
		}
	case fresh:
	case errors.Is(err, wire.ErrCorrupt), errors.Is(err, lastresort.ErrForgotten): // it keeps nobody's block: ours is better
		replaces = true
	default:
		return err
	}
	if replaces && ours.Place == lastresort.LayoutSpark {
		if err := u.hide(ctx, ours); err != nil {
			return err
		}
	}
	yields = yields && fresh && ours.Place == lastresort.LayoutBlocks && ours.Origin != f.source.node
	if ours.Members, err = u.send(ctx, ours, yields); err != nil {
		if yields && errors.Is(err, fs.ErrExist) {
			await.Sleep(ctx, rivalPatience)
		}
		return err
	}
	ours.Sum = ours.Total()
	return f.PutRecord(late, ours, fresh)
}

// same reports whether the copy in the fallback is the block that is here, whole, and since when its files are there. A copy of another
// origin may be Spark's own copy of a map output, or the output that ours is a copy of: then the files that both have are compared.
func (u *upload) same(ctx context.Context, there lastresort.Record, origin string) (same bool, since time.Time, err error) {
	theirs, ours := there.Sizes(), wire.AppendSizes(nil, u.e.Members)
	if !slices.Equal(theirs, ours) && (there.Origin == origin || !catalog.SameOutput(string(u.e.ID), theirs, ours)) {
		return false, since, nil
	}
	for i, m := range ours {
		at := slices.Index(theirs, m)
		if at < 0 {
			continue
		}
		c := u.content(i, nil)
		err := c.drain(ctx)
		c.close()
		if err != nil {
			return false, since, err
		}
		if !bytes.Equal(there.Members[at].Chunks, c.sums) {
			return false, since, nil
		}
	}
	return u.to.Whole(ctx, there)
}

// hide makes an engine find no index while the data beside it is replaced. An engine does not look at records: if time is up when only the
// new data is there, it would take those bytes for its own by the old index. Nothing is deleted there, so the index is made empty.
func (u *upload) hide(ctx context.Context, r lastresort.Record) error {
	for _, m := range u.e.Members {
		if (inventory.SparkLayout{}).Last(m.Name) {
			name := lastresort.SparkName(r.ID.Scope(), m.Name)
			if err := u.to.Objects.Put(ctx, name, 0, strings.NewReader(""), false); err != nil {
				return err
			}
		}
	}
	return nil
}

// send puts the block's files there, and last the file that makes the others visible to an engine. With fresh, fs.ErrExist says that one of
// them was there.
func (u *upload) send(ctx context.Context, r lastresort.Record, fresh bool) ([]lastresort.Member, error) {
	members := make([]lastresort.Member, len(u.e.Members))
	for i, m := range u.e.Members {
		members[i] = lastresort.Member{Name: m.Name, Bytes: m.Bytes}
	}
	r.Members = members
	names := r.Names()
	for _, last := range []bool{false, true} {
		for i, m := range u.e.Members {
			if (inventory.SparkLayout{}).Last(m.Name) != last {
				continue
			}
			if err := u.turn(ctx); err != nil { // here, too: the storage does not owe an answer yet
				return nil, err
			}
			c := u.content(i, func(n int) error { return u.pass(ctx, n) })
			answered := u.to.await(m.Bytes)
			err := u.to.Objects.Put(ctx, names[i], m.Bytes, c, fresh)
			answered()
			c.close()
			if err != nil {
				return nil, err
			}
			u.asked(unloads)
			members[i].Chunks = c.sums
			u.sent += m.Bytes
		}
	}
	return members, nil
}
