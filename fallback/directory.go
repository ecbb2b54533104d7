package fallback

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Directory is a directory that outlives this machine: a mounted share. It must exist: where a mount is missing, making
// the directory would fill the machine's own disk.
type Directory struct {
	path  string
	calls chan struct{} // has one for each call under way, also for one that hangs

	syncs syncs

	mu    sync.Mutex
	known map[string]bool // directories below it whose names are durable
	stuck int             // calls under way that hang
	again time.Time       // when the next call may be tried; zero: no call has hung since the last one came back
}

const (
	unfinished = "lifeboat-unfinished" // where contents lie until they are whole, in several directories
	// mostKnown bounds the memory of known; a directory that was forgotten is synced once more.
	mostKnown = 4096
	copyBytes = 256 << 10
	// syncBytes is the most that is written between two syncs. A share takes bytes into memory at once, and a sync of them may take no
	// longer than silence, beside what others write there. So the first sync is of leastSync. The next is of twice as much if it was quick
	// (quickSync), else of half.
	syncBytes = 8 << 20
	leastSync = 512 << 10
	quickSync = time.Second
	// longestRest is the longest time that nothing is asked of a share that hangs. Somebody may mount another one in its place, and
	// nothing tells us so.
	longestRest = time.Minute
)

// NewDirectory does not look whether the directory is there: it may come later.
func NewDirectory(path string) *Directory {
	return &Directory{path: path, calls: make(chan struct{}, mostPuts+mostLeftBehind), known: map[string]bool{}}
}

// call is one piece of work on the directory, on a goroutine of its own. Nothing can end a system call on a share whose server is
// away, so the caller leaves such work behind. since is when the system call began that it waits for; 0: it waits for none.
type call struct {
	doing string // to the directory, in words of a person
	asked time.Time
	since atomic.Int64 // nanoseconds after asked, which no setting of the clock changes

	mu   sync.Mutex
	left bool // the caller has left it behind

	stuck, back bool // guarded by the directory's mu
}

// in brackets a system call.
func (c *call) in(work func() error) error {
	c.goesOn()
	defer c.since.Store(0)
	return c.told(work())
}

// told says in an error what was being done to which directory. It leaves out the file: the same fault meets many files, and their names
// say nothing.
func (c *call) told(err error) error {
	why, is := errors.AsType[syscall.Errno](err)
	if !is {
		return err
	}
	if remedy := remedies[why]; remedy != "" {
		return fmt.Errorf("%s: %w: %s", c.doing, why, remedy)
	}
	return fmt.Errorf("%s: %w", c.doing, why)
}

var remedies = map[syscall.Errno]string{
	syscall.ENOSPC: "make room there",
	syscall.EDQUOT: "raise the quota, or remove what is old",
	syscall.EROFS:  "mount it so that it can be written to",
	syscall.EACCES: "let the agent in, by its owner and mode",
	syscall.ESTALE: "mount it anew",
}

// goesOn begins the wait for a system call. Work of many calls inside one bracket says so after each: none of them has hung.
func (c *call) goesOn() { c.since.Store(max(1, int64(time.Since(c.asked)))) }

// silent reports whether a system call has not come back for too long.
func (c *call) silent(now time.Time) bool {
	since := c.since.Load()
	return since != 0 && now.Sub(c.asked)-time.Duration(since) >= silence
}

// outside brackets the use of what belongs to the caller, as the content's reader does. It is an error once the caller has gone.
func (c *call) outside(work func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		return errSilent
	}
	return work()
}

// do runs work until it returns, ctx has ended, or the directory is silent. Work that was left behind may go on for ever, so
// it shares nothing with the caller but what it uses by call.outside.
func do[T any](ctx context.Context, d *Directory, doing string, work func(c *call, root *os.Root) (T, error)) (none T, err error) {
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := d.rests(); err != nil {
		return none, err
	}
	select {
	case d.calls <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-time.After(silence):
		return none, fmt.Errorf("%s: %d calls do not come back: %w", d.path, cap(d.calls), errSilent)
	}
	late, stop := lingering(ctx, answerGrace)
	defer stop()
	type result struct {
		value T
		err   error
	}
	c := &call{doing: doing + " " + d.path, asked: time.Now()}
	done := make(chan result, 1)
	go func() {
		defer func() {
			d.comesBack(c)
			<-d.calls
		}()
		var root *os.Root
		var value T
		err := c.in(func() (err error) { root, err = os.OpenRoot(d.path); return err })
		if err == nil {
			value, err = work(c, root)
			root.Close() // nothing was written through it
		} else if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("directory %s is not there: is it mounted?", d.path) // which is not to say that a content is not
		}
		done <- result{value, err}
	}()
	look := time.NewTicker(silence / 10)
	defer look.Stop()
	for {
		select {
		case r := <-done:
			return r.value, r.err
		case <-late.Done():
			time.AfterFunc(silence, func() {
				if c.silent(time.Now()) {
					d.hangs(c)
				}
			})
			return none, c.leave(context.Cause(ctx))
		case now := <-look.C:
			if c.silent(now) {
				d.hangs(c)
				return none, c.leave(fmt.Errorf("%s: %w", d.path, errSilent))
			}
		}
	}
}

// hangs notes a call that does not come back. Each such call holds a thread of this process, and its caller has waited in vain. So from
// now on one call at a time is tried, and seldom, until any call comes back.
func (d *Directory) hangs(c *call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.back || c.stuck {
		return
	}
	c.stuck = true
	d.stuck++
	d.rest()
}

func (d *Directory) rest() {
	d.again = time.Now().Add(min(time.Duration(d.stuck)*silence, longestRest))
}

func (d *Directory) comesBack(c *call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.back = true; c.stuck {
		d.stuck--
	}
	d.again = time.Time{}
}

// rests returns an error while nothing is to be asked of a directory that hangs. After each rest it lets one call through, to try.
func (d *Directory) rests() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.again.IsZero():
		return nil
	case time.Now().Before(d.again):
		return fmt.Errorf("%s: %w", d.path, errSilent)
	}
	d.rest() // this call tries; the others rest on
	return nil
}

func (c *call) leave(why error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = true
	return why
}

// Put writes content aside, makes it durable, and only then gives it its name.
func (d *Directory) Put(ctx context.Context, name string, bytes int64, content io.Reader, fresh bool) error {
	_, err := do(ctx, d, "write to", func(c *call, root *os.Root) (struct{}, error) {
		aside := asideName()
		err := c.in(func() error { return d.makeDirs(root, path.Dir(aside)) })
		if err == nil {
			err = d.write(ctx, c, root, aside, bytes, content)
		}
		if err == nil { // a call left behind at a sync goes on late: another call may have put the name since
			err = c.outside(func() error { return nil })
		}
		if err == nil {
			publish := func() error { return d.publish(root, aside, name, fresh) }
			if err = c.in(publish); errors.Is(err, fs.ErrNotExist) { // a sweep has removed the directory while it was empty
				d.forget()
				err = c.in(publish)
			}
		}
		if err != nil {
			d.forget()
			_ = c.in(func() error { return root.Remove(aside) }) // else Sweep does it
		}
		return struct{}{}, err
	})
	return err
}

// asideName returns a name in one of 32 directories. In each of them the kernel makes one name at a time, and on a share every one takes
// the share's latency.
func asideName() string {
	name := rand.Text()
	return unfinished + "/" + name[:1] + "/" + name[1:]
}

// create opens a file aside. If its directory was known and is gone, create makes it anew: another share may be mounted by now.
func (d *Directory) create(root *os.Root, aside string) (*os.File, error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	f, err := root.OpenFile(aside, flags, 0o640)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	d.forget()
	if err := d.makeDirs(root, path.Dir(aside)); err != nil {
		return nil, err
	}
	return root.OpenFile(aside, flags, 0o640)
}

func (d *Directory) write(ctx context.Context, c *call, root *os.Root, aside string, bytes int64, content io.Reader) (err error) {
	var f *os.File
	err = c.in(func() (err error) {
		f, err = d.create(root, aside)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, c.in(f.Close)) }()
	buf := make([]byte, min(bytes, copyBytes))
	for left, unsynced, step := bytes, int64(0), int64(leastSync); ; {
		part := buf[:min(left, copyBytes)]
		err := c.outside(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return cmp.Or(readPart(content, part, int64(len(part)) == left), ctx.Err())
		})
		if err != nil {
			return err
		}
		if err := c.in(func() error { _, err := f.Write(part); return err }); err != nil {
			return err
		}
		left -= int64(len(part))
		if unsynced += int64(len(part)); unsynced >= step || left == 0 {
			began := time.Now()
			if err := c.in(func() error { return d.syncContent(root, f, bytes) }); err != nil || left == 0 {
				return err
			}
			unsynced = 0
			step = nextSync(step, time.Since(began))
		}
	}
}

// nextSync returns how much to write until the next sync, after a sync of so many bytes took so long.
func nextSync(bytes int64, took time.Duration) int64 {
	if took < quickSync {
		return min(2*bytes, syncBytes)
	}
	return max(bytes/2, leastSync)
}

// publish gives a finished content its name, durably.
func (d *Directory) publish(root *os.Root, aside, name string, fresh bool) error {
	dir := path.Dir(name)
	if err := d.makeDirs(root, dir); err != nil {
		return d.unfit(err)
	}
	if fresh {
		switch err := root.Link(aside, name); {
		case err == nil:
			return errors.Join(d.syncDir(root, dir), root.Remove(aside))
		case errors.Is(err, fs.ErrExist):
			return err
		}
		switch err := renameAnew(root, aside, name); { // the share has no hard links
		case err == nil:
			return d.syncDir(root, dir)
		case errors.Is(err, fs.ErrExist):
			return err
		}
		// It cannot do that, either. Between Lstat and Rename another node may put the name: then ours replaces it, whole.
		switch _, err := root.Lstat(name); {
		case err == nil:
			return fs.ErrExist
		case !errors.Is(err, fs.ErrNotExist):
			return d.unfit(err)
		}
	}
	if err := root.Rename(aside, name); err != nil {
		return d.unfit(err)
	}
	return d.syncDir(root, dir)
}

// renameAnew renames a file unless something has the new name. Not every share can.
func renameAnew(root *os.Root, from, to string) error {
	here, err := root.Open(path.Dir(from))
	if err != nil {
		return err
	}
	defer here.Close()
	there, err := root.Open(path.Dir(to))
	if err != nil {
		return err
	}
	defer there.Close()
	return unix.Renameat2(int(here.Fd()), path.Base(from), int(there.Fd()), path.Base(to), unix.RENAME_NOREPLACE)
}

// unfit tells a name that nothing can have there from a directory that takes nothing: the name is too long for the share or has a letter
// that it does not take, or what was a directory when others were put there is a file now, or the other way round.
func (d *Directory) unfit(err error) error {
	for _, why := range []syscall.Errno{syscall.ENAMETOOLONG, syscall.EINVAL, syscall.EILSEQ, syscall.ENOTDIR, syscall.EISDIR, syscall.EEXIST, syscall.ENOTEMPTY} {
		if errors.Is(err, why) {
			return unfitError(fmt.Sprintf("%s takes no such name (%v): remove what lies in its way there, or rename the file here", d.path, why))
		}
	}
	return err
}

// makeDirs makes a directory and those above it, each name durable in the one above.
func (d *Directory) makeDirs(root *os.Root, dir string) error {
	if dir == "." || d.isKnown(dir) {
		return nil
	}
	above := path.Dir(dir)
	if err := d.makeDirs(root, above); err != nil {
		return err
	}
	if err := root.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := d.syncDir(root, above); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) >= mostKnown {
		clear(d.known)
	}
	d.known[dir] = true
	return nil
}

func (d *Directory) isKnown(dir string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known[dir]
}

// forget makes the next Put look anew which directories there are, and on which file system: somebody may have removed them, or
// mounted another share.
func (d *Directory) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.known)
	d.syncs.forget()
}

// Get reads a part of a content.
func (d *Directory) Get(ctx context.Context, name string, from int64, into []byte) (int, error) {
	size := int64(len(into))
	body, err := do(ctx, d, "read from", func(c *call, root *os.Root) (body []byte, err error) {
		err = c.in(func() error {
			f, err := root.Open(name)
			if err != nil {
				return err
			}
			body = make([]byte, size)
			n, err := f.ReadAt(body, from)
			body = body[:n]
			return errors.Join(err, f.Close())
		})
		return body, err
	})
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return copy(into, body), err
}

// Stat tells a file's size and time. The tag changes with both.
func (d *Directory) Stat(ctx context.Context, name string) (bytes int64, tag string, at time.Time, err error) {
	info, err := do(ctx, d, "look into", func(c *call, root *os.Root) (info fs.FileInfo, err error) {
		err = c.in(func() (err error) { info, err = root.Stat(name); return err })
		return info, err
	})
	if err != nil {
		return 0, "", time.Time{}, err
	}
	return info.Size(), fmt.Sprintf("%x-%x", info.Size(), info.ModTime().UnixNano()), info.ModTime(), nil
}
