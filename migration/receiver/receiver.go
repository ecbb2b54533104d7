// Package receiver takes the blocks that other nodes send, and keeps them. It admits streams and reserves room, lands blocks in the vault
// or in their place in a store, commits them in groups, and sends a block's receipt only once the block is durable. A landed block becomes
// files where its engine wants files, and is read back. It goes when its app is over, when its time is up, when the node that it was born
// on says so, or when an engine has removed its files.
//
// A reader never gets part of a block; a block that is no longer whole is reported by its id. A disk that hangs holds up only the blocks
// that lie on it. The package does not choose who may connect, and talks to nobody but the senders: what it needs to know of the fleet it
// gets through Config. A Receiver's Run runs once, and its vault outlives it.
//
// The files by subject, in an order to read them:
//
//	a stream:             receiver, inbound, unfinished, inbound_land, budget, allotment, known, conflict, nowhere, outbox
//	  to its receipts:    landing, publish, commit
//	what landed:          unmounted, oversee
//	  becomes files:      unpack, unpack_group
//	  is read back:       scrub, scrub_aside, scrub_read
//	  goes again:         removal, aged, over, ghosts, forget, catch_up
package receiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Config is what a Receiver needs to know of its node.
type Config struct {
	Node   string
	Stores []*inventory.Store
	Vault  *vault.Vault

	// Room returns how many bytes may still be written below a path; if Disks is set, less what Disks has reserved.
	Room func(path string) (int64, error)
	// Disks are the disks under the vault and under the stores that blocks land in. Nil: all are well, and Room alone
	// decides.
	Disks diskio.Disks
	// Admit says whether blocks are taken now. advised: the sender offers its blocks even to a node that is advised to
	// go.
	Admit func(advised bool) Admission
	// Landed is told of blocks once they are durable here, Gone of blocks that are removed. Nil: nobody is told. The
	// receiver uses Landed's slice again once Landed has returned.
	Landed func([]vault.Held)
	Gone   func(ids []inventory.BlockID, why string)
	// Ended is told when a stream ends that brought blocks: its sender may go now. Nil: nobody is told.
	Ended func()
	// Broken is told of a block that was removed because its bytes here are no longer the bytes that landed. Of a block
	// whose record cannot be read it gets the id alone. Nil: nobody is told.
	Broken func(vault.Held)
	// Over says which apps are over: their landed blocks are removed. Nil: no app is.
	Over Over
	// OverChanged returns a channel that is closed when Over may have another answer. Nil, or a channel that never
	// closes: Over is asked each minute.
	OverChanged func() <-chan struct{}
	// ScrubBytesPerSecond is how fast landed blocks are read back off the disks; 0: they are not read back.
	ScrubBytesPerSecond int64
	// MaxStreams bounds the streams served at once, and MaxBytes all that rests here from other nodes; 0: only the
	// disks bound it.
	MaxStreams int
	MaxBytes   int64
	// Keep is how long a block stays after it landed, and then after the node that it was born on went; 0: until somebody removes it. A
	// block of an app that is InUse stays longer.
	Keep  time.Duration
	InUse func(app string) bool // nil: no app is
	// Home is asked about blocks that were born on another node and have been here for longer than Keep. Nil: they are
	// removed unasked.
	Home func(ctx context.Context, node string, about []reading.Version) (Home, error)
	Log  *slog.Logger
}

// Admission says whether a node takes blocks now, and what it tells the senders.
type Admission struct {
	Refused string        // why nothing is taken; "": blocks are taken
	Retry   time.Duration // when the sender may ask again
	Advised bool          // the node may leave itself: it takes what no other node takes
}

// Receiver takes blocks from leaving peers, makes them durable, and only then sends their receipts. Its Run runs once;
// Serve serves any number of streams beside it.
type Receiver struct {
	cfg    Config
	disks  diskio.Disks
	stores map[string]*inventory.Store
	commit *committer
	budget Budget
	unpackers

	lookingForGhosts atomic.Bool  // a look is under way, or hangs on a disk
	scrubbed, broken atomic.Int64 // bytes that were read back, blocks that were found broken
	laidUp           atomic.Int64 // unfinished blocks that wait for their senders to come back

	mu      sync.Mutex
	live    map[*inbound]bool     // streams; true: given up because a disk hangs under it
	backs   map[*diskio.Work]bool // reads of landed blocks under way
	stuck   []string              // directories whose disks hang under something
	stopped bool
	owing   int           // blocks that were accepted whole and have no receipt yet
	settled chan struct{} // closed and replaced when owing comes down to 0

	serving sync.WaitGroup
}

// New prepares a receiver, and removes what an interrupted one left behind in the stores.
func New(cfg Config) *Receiver {
	r := &Receiver{cfg: cfg, disks: cfg.Disks, stores: map[string]*inventory.Store{}, live: map[*inbound]bool{}, backs: map[*diskio.Work]bool{}, settled: make(chan struct{})}
	r.budget.Streams, r.budget.bytes = cfg.MaxStreams, cfg.MaxBytes
	if r.disks == nil {
		well := diskio.NewWell(cfg.Room)
		r.disks, r.cfg.Room = well, well.Left
	}
	r.commit = newCommitter(cfg.Vault, r.disks, r.landed)
	r.commit.keep = cfg.Keep
	cfg.Vault.Watch(cfg.Disks)
	for _, s := range cfg.Stores {
		s.Watch(cfg.Disks)
		if err := cfg.Vault.Catalog.Renumber(s.Name, s.Paths); err != nil {
			mistrust(s, err)
		}
		if s.Land == inventory.LandPlace {
			if err := sweepStaging(s); err != nil { // this disk errs or is read-only: the others are well
				cfg.Log.Warn("what a crash left behind cannot be removed", "err", err)
			}
			findAway(s, cfg.Vault.Catalog)
		}
		for _, why := range s.AwayWhy {
			if why != nil {
				cfg.Log.Error("a store's directory is without its disk: nothing lands there, and what did is not known to be there", "store", s.Name, "err", why)
			}
		}
		r.stores[s.Name] = s
	}
	r.unpackers.all = newUnpackers(r)
	return r
}

// lastStand is how long Run waits, once ctx has ended, for streams to end and for their blocks to be durable. A stream
// that hangs on a disk for longer is left behind: nothing can end it.
const lastStand = diskio.Overdue + 2*diskio.LookAfter + lastWords

// Run makes landed blocks durable until ctx ends and every stream being served has ended.
func (r *Receiver) Run(ctx context.Context) error {
	r.sayRemade()
	looking, stop := context.WithCancel(context.WithoutCancel(ctx))
	var overseeing sync.WaitGroup
	overseeing.Go(func() { r.oversee(looking) })
	helpers := []<-chan struct{}{
		diskio.Beside(func() { r.tidy(ctx) }),
		diskio.Beside(func() { diskio.AtLeisure(ctx, r.DropGhosts) }),
		diskio.Beside(func() { r.scrub(ctx) }),
		diskio.Beside(func() { r.unpack(ctx) }),
	}
	if r.cfg.Over != nil {
		helpers = append(helpers, diskio.Beside(func() { r.letGo(ctx) }))
	}
	defer overseeing.Wait()
	defer stop()
	<-ctx.Done()
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	late, cancel := context.WithTimeout(looking, lastStand)
	defer cancel()
	select {
	case <-diskio.Beside(r.serving.Wait):
	case <-late.Done():
		r.cfg.Log.Error("the receiver stops although streams on a hung disk have not ended")
	}
	for _, ended := range helpers {
		select {
		case <-ended:
		case <-late.Done(): // the helper hangs on a disk
		}
	}
	r.Settle(late)
	moment, cancel := context.WithTimeout(looking, diskio.Suspect) // blocks that are still queued have been answered
	defer cancel()
	r.commit.end(moment)
	return nil
}

// Room returns what the receiver would grant a sender now, and how large one block may be: all counts every place, vault only the vault,
// for blocks that have no place in a store. Neither is more than what is left of the quota.
func (r *Receiver) Room() (all, vault Room) {
	_, all, vault = r.rooms(false)
	return all, vault
}

func (r *Receiver) grant(alone bool) wire.Grant {
	g, _, _ := r.rooms(alone)
	return g
}

func (r *Receiver) rooms(alone bool) (g wire.Grant, all, vault Room) {
	rests, places := r.cfg.Vault.Takes(), r.cfg.Vault.Usable()
	within := func(is Room) Room {
		return Room{r.budget.left(rests, is.Bytes, alone), r.budget.left(rests, is.LargestBytes, alone)}
	}
	vault = within(r.roomIn(r.open(places)))
	for _, s := range r.cfg.Stores {
		if s.Land == inventory.LandPlace && r.sound(s) == nil {
			places, g.Places = append(places, s.Paths...), append(g.Places, s.Name)
		}
	}
	all = within(r.roomIn(r.open(places)))
	g.RoomBytes, g.VaultBytes = all.Bytes, vault.Bytes
	return g, all, vault
}

// roomIn returns the room in these directories. Directories on one file system share its room; directories whose file
// system is unknown count as one, for they may share it.
func (r *Receiver) roomIn(places []string) (is Room) {
	most := map[string]int64{}
	for _, p := range places {
		if left, err := r.cfg.Room(p); err == nil { // an unknown room counts as none
			on := r.disks.FileSystem(p)
			most[on] = max(most[on], left)
		}
	}
	for _, left := range most {
		is.Bytes, is.LargestBytes = is.Bytes+left, max(is.LargestBytes, left)
	}
	return is
}

// most is the room of the roomiest of these directories.
func (r *Receiver) most(places []string) int64 { return r.roomIn(places).LargestBytes }

// knows reports whether the room of all these directories is known. It is not until somebody has looked at their disks.
func (r *Receiver) knows(places []string) bool {
	return !slices.ContainsFunc(places, func(p string) bool {
		_, err := r.cfg.Room(p)
		return err != nil
	})
}

// take reserves the first bytes of a block on the best of these directories that have room for the whole block.
func (r *Receiver) take(bytes, first int64, among []string) (dir string, release func(int64), err error) {
	open := r.open(among)
	roomy := open
	if first < bytes {
		roomy = slices.DeleteFunc(slices.Clone(open), func(dir string) bool {
			left, err := r.cfg.Room(dir)
			return err != nil || left < bytes
		})
	}
	if dir, release, ok := r.disks.Take(min(first, bytes), roomy); ok {
		return dir, release, nil
	}
	err = &FullError{NeedBytes: bytes, HasBytes: r.most(open)}
	if len(open) == 0 {
		err = fmt.Errorf("no disk takes blocks, or none their records in %s: %s: %w", r.cfg.Vault.Dir, strings.Join(among, ", "), err)
	}
	return "", nil, err
}

// homes reserves room for the first bytes of each member of a block in its store: on the disk where the layout puts the
// member, or if the layout does not care, on the best of the store's disks. A block that comes again goes where its
// earlier version lies, or the two would lie side by side. had returns the record that is under the block's id.
func (r *Receiver) homes(s *inventory.Store, o wire.Opening, first int64, had func(wire.Opening) (catalog.Record, error)) (roots []int, release func(written int64), err error) {
	id, need := inventory.BlockID(o.ID), map[int]int64{}
	for _, m := range o.Members {
		root, _ := s.Shape.Place(s, id, m.Name)
		roots = append(roots, root)
		need[root] += m.Bytes
	}
	if s.Shape.Anywhere() {
		among := s.Paths
		if old, err := had(o); err == nil && len(old.Placed) > 0 && old.Placed[0].Root < len(s.Paths) {
			among = s.Paths[old.Placed[0].Root:][:1]
		}
		dir, release, err := r.take(o.Bytes(), first, among)
		return slices.Repeat([]int{slices.Index(s.Paths, dir)}, len(o.Members)), release, err
	}
	var releases []func(int64)
	release = func(written int64) {
		for _, f := range releases {
			f(written)
		}
	}
	for root, bytes := range need {
		_, undo, err := r.take(bytes, first, []string{s.Paths[root]})
		if err != nil {
			release(0)
			return nil, nil, err
		}
		releases = append(releases, func(written int64) { undo(min(written, bytes)) })
	}
	return roots, release, nil
}

// FullError says that a node has no room for a block.
type FullError struct{ NeedBytes, HasBytes int64 }

func (e *FullError) Error() string {
	need, has := config.Bytes(e.NeedBytes).Rough(), config.Bytes(e.HasBytes).Rough()
	if need == has { // they differ by some bytes only
		need, has = fmt.Sprintf("%d bytes", e.NeedBytes), fmt.Sprint(e.HasBytes)
	}
	return "full: need " + need + ", has " + has
}

// accept counts a complete block as owed a verdict until answered is called, or returns an error if blocks are not
// taken any more. It counts before it asks Admit: a caller that makes Admit refuse and then calls Settle has waited for
// every block that was accepted.
func (r *Receiver) accept(advised bool, bytes int64) error {
	r.mu.Lock()
	r.owing++
	r.mu.Unlock()
	err := r.turnAway(advised, bytes)
	if err != nil {
		r.answered(1)
	}
	return err
}

// turnAway returns what a sender is told while Admit refuses: that this node is full, for then the sender tries another
// peer at once.
func (r *Receiver) turnAway(advised bool, bytes int64) error {
	if is := r.cfg.Admit(advised); is.Refused != "" {
		return fmt.Errorf("%s: %w", is.Refused, &FullError{NeedBytes: bytes})
	}
	return nil
}

func (r *Receiver) answered(blocks int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owing -= blocks; blocks > 0 && r.owing == 0 {
		close(r.settled)
		r.settled = make(chan struct{})
	}
}

// Settle waits, while ctx lasts, until every accepted block has its verdict. If Admit refuses by then, no further block
// will land.
func (r *Receiver) Settle(ctx context.Context) {
	for ctx.Err() == nil {
		r.mu.Lock()
		owing, settled := r.owing, r.settled
		r.mu.Unlock()
		if owing == 0 {
			return
		}
		select {
		case <-settled:
		case <-ctx.Done():
		}
	}
}

// enter counts a stream in, or says why not.
func (r *Receiver) enter(h wire.Hello) (advised bool, no *wire.Refuse) {
	is := r.cfg.Admit(h.Advised)
	if is.Refused != "" {
		return false, &wire.Refuse{Reason: is.Refused, RetryMillis: is.Retry.Milliseconds(), Stays: true}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return false, &wire.Refuse{Reason: "the agent is stopping", RetryMillis: 5000}
	}
	if err := r.budget.Enter(h.Node, h.Alone); err != nil {
		return false, &wire.Refuse{Reason: err.Error(), RetryMillis: RetryBusy.Milliseconds()}
	}
	r.serving.Add(1)
	return is.Advised, nil
}

// RetryBusy is how long a sender waits that found all streams taken: about as long as a few blocks take to send.
const RetryBusy = time.Second

func (r *Receiver) leave(node string) {
	r.budget.Leave(node)
	r.serving.Done()
}

const (
	// greetingTimeout is how long a stream may take from its first byte (TLS included) to its grant.
	greetingTimeout = 10 * time.Second
	// lastWords is how long a sender gets to take its last receipts.
	lastWords = 5 * time.Second
)

// Serve takes what one sender sends over a connection whose other end is known to be that node, until the sender closes
// it or ctx ends. Blocks that were complete by then still get their receipts. Serve closes conn.
func (r *Receiver) Serve(ctx context.Context, conn net.Conn, node string) error {
	defer wire.Cut(conn)
	greeting := time.AfterFunc(greetingTimeout, func() { wire.Cut(conn) })
	defer greeting.Stop()
	undo := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Now()) })
	defer undo()
	in := newInbound(r, node, conn)
	admitted, err := in.handshake(conn)
	switch {
	case err != nil:
		return fmt.Errorf("receive from %s: %w", node, err)
	case !admitted:
		return nil
	}
	in.leave = sync.OnceFunc(func() { r.budget.Leave(node) })
	defer r.serving.Done()
	defer in.leave()
	greeting.Stop()
	began := time.Now()
	defer func() {
		if n := in.kept.blocks.Load(); n > 0 {
			r.cfg.Log.Info("received", "node", node, "blocks", n, "bytes", in.kept.bytes.Load(), "took", time.Since(began).Round(time.Millisecond))
			if r.cfg.Ended != nil {
				r.cfg.Ended()
			}
		}
	}()
	r.come(in)
	unwatch := diskio.Watch(wire.SenderTimeout, &in.beat, in.open.Load, func() { wire.Cut(conn) })
	defer unwatch()

	written := make(chan error, 1)
	go func() { written <- in.out.run(conn) }()
	ran := make(chan error, 1)
	go func() {
		defer r.gone(in)
		err := in.run()
		in.layUp(ctx)
		in.close()
		in.owed.Wait() // receipts for what is being committed
		ran <- err
	}()
	select {
	case err = <-ran:
	case <-in.lost: // the stream does not end before its disk answers
		wire.Cut(conn)
		err = in.why
	}
	in.out.close()
	taken := time.AfterFunc(lastWords, func() { wire.Cut(conn) })
	defer taken.Stop()
	if wrote := <-written; err == nil {
		err = wrote
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("receive from %s: %w", node, err)
	}
	conn.Close() // in good order, so that the sender sees that nothing was cut off
	return nil
}

// intact reads a landed block back, and returns what is wrong with it. A receipt for a block that comes again relies on this as
// any receipt relies on a commit. intact calls step, with the directory that it reads from, before it opens a member and before
// each chunk.
func (r *Receiver) intact(old catalog.Record, step func(dir *string)) error {
	return r.each(old, func(_ int, dir *string) { step(dir) }, func(dir *string, m wire.MemberSize, c io.Reader) error {
		return readThrough(m, c, func() { step(dir) })
	})
}

// present returns what is wrong with a landed block, as far as that shows without reading it.
func (r *Receiver) present(old catalog.Record, step func(dir *string)) error {
	return r.each(old, func(_ int, dir *string) { step(dir) }, func(*string, wire.MemberSize, io.Reader) error { return nil })
}

// each opens the members of a landed block, and before each calls next with its number and its directory.
func (r *Receiver) each(old catalog.Record, next func(member int, dir *string), do func(*string, wire.MemberSize, io.Reader) error) error {
	if err := r.answers(old); err != nil {
		return err
	}
	for i, m := range old.Members {
		dir := r.lies(old, i)
		next(i, dir)
		c, err := r.cfg.Vault.OpenLanded(r.stores[inventory.BlockID(old.ID).Store()], old, i, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(do(dir, m, c), c.Close()); err != nil {
			return err
		}
	}
	return nil
}

// readThrough reads a member to its end, and calls step before each chunk.
func readThrough(m wire.MemberSize, c io.Reader, step func()) (err error) {
	for left := m.Bytes; left > 0 && err == nil; left -= wire.ChunkBytes {
		step()
		_, err = io.CopyN(io.Discard, c, min(left, wire.ChunkBytes))
	}
	return err
}

// lies returns the directory that a member of a block lies in; the vault's first where the directory is not known.
func (r *Receiver) lies(rec catalog.Record, member int) *string {
	if rec.Segment != 0 {
		dir, _ := r.cfg.Vault.Home(rec.Segment)
		return &dir
	}
	if s := r.stores[inventory.BlockID(rec.ID).Store()]; s != nil && member < len(rec.Placed) && rec.Placed[member].Root < len(s.Paths) {
		return &s.Paths[rec.Placed[member].Root]
	}
	return &r.cfg.Vault.Dir
}

// VaultDir is where an agent with that data directory keeps its vault.
func VaultDir(dataDir string) string { return filepath.Join(dataDir, "vault") }

// atomicCount counts the blocks of a stream that are durable here.
type atomicCount struct{ blocks, bytes atomic.Int64 }

func (c *atomicCount) add(bytes int64) {
	c.blocks.Add(1)
	c.bytes.Add(bytes)
}
