package migration

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// where returns the directories that a block lies in; nobody may change what it returns.
func (d *Drain) where(b Block) (dirs []string) {
	if len(b.Members) == 1 && b.Members[0].root != inVault { // as nearly all are
		return d.stores[b.ID.Store()].Paths[b.Members[0].root:][:1:1]
	}
	for i := range b.Members {
		if dir := *d.dirOf(b, i); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// concerns reports whether the drain is about a block.
func (d *Drain) concerns(b Block) bool { return len(d.cfg.Only) == 0 || d.concernsAny(d.where(b)) }

func (d *Drain) concernsAny(dirs []string) bool {
	if len(d.cfg.Only) == 0 {
		return true
	}
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return slices.ContainsFunc(d.cfg.Only, func(only string) bool { return below(dir, only) })
	})
}

// oversee keeps what lies on a disk that does not answer from holding up the rest.
func (d *Drain) oversee(ctx context.Context) {
	tick := time.NewTicker(lookAfter)
	defer tick.Stop()
	for {
		changed := d.disks.Changed()
		d.look(time.Now())
		d.hush(time.Now())
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look has the plan keep what lies on disks that do not answer, and gives up the lanes that read from them.
func (d *Drain) look(now time.Time) {
	barred := map[string]string{}
	for dir, why := range d.cfg.Vault.Away() {
		barred[dir] = why.Error()
	}
	for _, dir := range d.dirs() {
		if !d.disks.Readable(dir) {
			barred[dir] = (&silentError{dir}).Error()
		}
	}
	d.mu.Lock()
	lanes := slices.Collect(maps.Keys(d.lanes))
	d.mu.Unlock()
	for _, l := range lanes {
		dir, took, ok := l.busy(now)
		if !ok || took < suspect || took < overdue && barred[dir] == "" {
			continue
		}
		if barred[dir] == "" {
			d.disks.Fault(dir, &silentError{dir})
		}
		barred[dir] = (&silentError{dir}).Error()
		l.giveUp(dir)
	}
	d.plan.bar(barred)
}

// dirs are all that the drain reads from.
func (d *Drain) dirs() []string {
	dirs := d.cfg.Vault.all()
	for _, s := range d.cfg.Stores {
		dirs = append(dirs, s.Paths...)
	}
	return dirs
}

// scanPart reads a part of a store for as long as its disks answer. One that hangs is left behind with what it holds up.
func (d *Drain) scanPart(ctx context.Context, s *Store, part int, take func(Item, error) bool) {
	dirs := s.partDirs(part)
	began := time.Now()
	before := past{d.looked(dirs), d.places, d.last(dirs), began}
	look := func(yield func(Item, error) bool) bool { return s.layout.scan(ctx, s, part, before, yield) }
	if index := d.index(ctx, s, part, before.since); index != nil {
		defer index.close()
		began = index.began
		look = func(yield func(Item, error) bool) bool { return index.scan(ctx, yield) }
	}
	var beat atomic.Int64
	var over atomic.Bool
	ended := make(chan bool, 1)
	go func() {
		whole := look(func(it Item, err error) bool {
			beat.Add(1)
			return !over.Load() && take(it, err)
		})
		ended <- whole && ctx.Err() == nil
	}()
	owes := func() bool { return slices.ContainsFunc(dirs, func(dir string) bool { return !d.disks.Readable(dir) }) }
	hung := make(chan struct{})
	defer watch(overdue, &beat, owes, func() { close(hung) })()
	select {
	case whole := <-ended:
		if whole {
			d.scanned(dirs, began)
		}
	case <-hung:
		over.Store(true)
		d.abandoned(s, dirs, began)
	}
}

// index is what takes the place of the first look at a part of a store, in a drain that carries everything; nil: nothing
// does. The next look is then for what changed since the index was begun, as if the drain had begun there.
func (d *Drain) index(ctx context.Context, s *Store, part int, since time.Time) *indexScan {
	if !since.IsZero() || len(d.cfg.Only) > 0 {
		return nil
	}
	index := d.cfg.Index.open(ctx, s, part)
	if index != nil {
		index.past = past{places: d.places, began: index.began}
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, dir := range s.partDirs(part) {
			d.asOf[dir] = index.began
		}
	}
	return index
}

// looked is the instant since which a file of the directories must have changed to be news, in the sense of fresh; the zero
// time: every file is.
func (d *Drain) looked(dirs []string) (since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, dir := range dirs {
		at, ok := d.since[dir]
		if !ok {
			return time.Time{}
		}
		if at = at.Add(-clockGrain - d.back); i == 0 || at.Before(since) {
			since = at
		}
	}
	return since
}

// last is when the look before began, which is what since is of a part that lies in one directory.
func (d *Drain) last(dirs []string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.since[dirs[0]]
}

// scanned notes which directories a scan has read since it began, and which it could not.
func (d *Drain) scanned(dirs []string, began time.Time) {
	for _, dir := range dirs {
		if d.disks.Readable(dir) {
			d.read([]string{dir}, began)
		} else {
			d.missed(dir, (&silentError{dir}).Error())
		}
	}
}

// abandoned notes a scan that hangs. What it has planned is not looked for again, what it had not met by then is lost.
func (d *Drain) abandoned(s *Store, dirs []string, began time.Time) {
	for _, dir := range dirs {
		why := (&silentError{dir}).Error()
		if d.disks.Readable(dir) {
			why = fmt.Sprintf("not all of it was read: another disk of store %s does not answer", s.Name)
		}
		d.missed(dir, why)
		if d.disks.Readable(dir) {
			d.mu.Lock()
			d.since[dir] = began
			d.mu.Unlock()
		}
	}
}

// read notes that all of these directories was read since then.
func (d *Drain) read(dirs []string, began time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dir := range dirs {
		if _, known := d.since[dir]; !known {
			delete(d.unread, dir)
		}
		d.since[dir] = began
		maps.DeleteFunc(d.unlisted, func(listed string, u unlisted) bool { return below(listed, dir) && u.at.Before(began) })
	}
}

// missed notes that a directory cannot be read, if it never was.
func (d *Drain) missed(dir, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.since[dir]; known || d.unread[dir] != "" {
		return
	}
	d.unread[dir] = why
	d.cfg.Log.Error("what lies in a directory stays behind unless it can be read in time", "dir", dir, "err", why)
}

// unlisted is why not all names in a directory could be told, and when.
type unlisted struct {
	why string
	at  time.Time
}

// mostUnlisted bounds those that are named: of more, the store's directory is.
const mostUnlisted = 1024

// unlist notes a directory in which there may be what nobody can name, until a look can read it.
func (d *Drain) unlist(e *unlistedError) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir := e.path()
	_, known := d.unlisted[dir]
	if !known && len(d.unlisted) >= mostUnlisted {
		dir = e.root
		_, known = d.unlisted[dir]
	}
	d.unlisted[dir] = unlisted{e.err.Error(), time.Now()}
	if !known {
		d.cfg.Log.Error("what lies in a directory stays behind unless it can be read in time", "dir", dir, "err", e.err)
	}
}

// accountForTime notes the directories that no scan came to the end of.
func (d *Drain) accountForTime(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dir := range d.dirs() {
		if _, known := d.since[dir]; !known && d.unread[dir] == "" {
			d.unread[dir] = "not all of it was read: " + why
		}
	}
}

// accountForDisks books what no scan could read: nobody knows its name.
func (d *Drain) accountForDisks() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for dir, u := range d.unlisted {
		d.unread[dir] = cmp.Or(d.unread[dir], u.why)
	}
	for _, dir := range slices.Sorted(maps.Keys(d.unread)) {
		if d.concernsAny([]string{dir}) {
			d.ledger.add(Entry{ID: fmt.Sprintf("(what lies in %s)", dir), Outcome: Lost, Reason: d.unread[dir]})
		}
	}
}
