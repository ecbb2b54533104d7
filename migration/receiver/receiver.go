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
//	a stream:             receiver, door, budget, streams, inbound, unfinished, inbound_land, allotment, known, conflict, nowhere, outbox
//	  to its receipts:    landing, publish, intent, commit
//	where it lies:        volumes, unmounted, oversee, intact
//	  becomes files:      unpack, unpack_group
//	  is read back:       scrub, scrub_aside, scrub_read
//	  goes again:         removal, aged, over, ghosts, forget, catch_up
package receiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/await"
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
	// Home is asked about blocks that were born on another node and have been here for longer than Keep, and about no blocks where
	// only the node matters (aged). Nil: they are removed unasked.
	Home func(ctx context.Context, node string, about []reading.Version) (Home, error)
	Log  *slog.Logger
}

// Receiver takes blocks from leaving peers, makes them durable, and only then sends their receipts. Its Run runs once;
// Serve serves any number of streams beside it.
//
// Each of its parts owns what it knows, and a lock for that; none of them calls the Receiver.
type Receiver struct {
	cfg        Config
	*volumes              // where blocks land and lie
	*door                 // who is let in, and what is owed
	*streams              // those being served
	commit     *committer // blocks become durable
	*unpackers            // small blocks become files
	*removal              // what landed goes again
	*scrubber             // and is read back
}

// New prepares a receiver, and removes what an interrupted one left behind in the stores.
func New(cfg Config) *Receiver {
	disks := cfg.Disks
	if disks == nil {
		well := diskio.NewWell(cfg.Room)
		disks, cfg.Room = well, well.Left
	}
	r := &Receiver{cfg: cfg}
	r.volumes = &volumes{cfg: &r.cfg, disks: disks, stores: inventory.ByName(cfg.Stores)}
	r.door = &door{cfg: &r.cfg, budget: Budget{Streams: cfg.MaxStreams, bytes: cfg.MaxBytes}}
	r.streams = &streams{live: map[*inbound]bool{}}
	r.unpackers = newUnpackers(&r.cfg, r.volumes, r.door, r.streams)
	r.commit = newCommitter(cfg.Vault, disks, r.landed)
	r.commit.keep = cfg.Keep
	r.removal = &removal{cfg: &r.cfg, volumes: r.volumes, door: r.door, unpackers: r.unpackers, waste: r.commit.waste}
	r.scrubber = &scrubber{cfg: &r.cfg, volumes: r.volumes, door: r.door, streams: r.streams, removal: r.removal, backs: map[*diskio.Work]bool{}}
	cfg.Vault.Watch(cfg.Disks)
	for _, s := range cfg.Stores {
		r.ready(s)
	}
	return r
}

// ready prepares a store for what lands in it.
func (r *Receiver) ready(s *inventory.Store) {
	s.Watch(r.cfg.Disks)
	if err := r.cfg.Vault.Catalog.Renumber(s.Name, s.Paths); err != nil {
		mistrust(s, err)
	}
	if s.Land == inventory.LandPlace {
		if err := errors.Join(r.commit.finishIntents(s), sweepStaging(s)); err != nil { // this disk errs or is read-only: the others are well
			r.cfg.Log.Warn("what a crash left behind cannot be removed", "err", err)
		}
		findAway(s, r.cfg.Vault.Catalog)
	}
	for _, why := range s.AwayWhy {
		if why != nil {
			r.cfg.Log.Error("a store's directory is without its disk: nothing lands there, and what did is not known to be there", "store", s.Name, "err", why)
		}
	}
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
		await.Beside(func() { r.removal.tidy(ctx) }),
		await.Beside(func() { diskio.AtLeisure(ctx, r.removal.DropGhosts) }),
		await.Beside(func() { r.scrubber.run(ctx) }),
		await.Beside(func() { r.unpackers.run(ctx) }),
	}
	if r.cfg.Over != nil {
		helpers = append(helpers, await.Beside(func() { r.removal.letGo(ctx) }))
	}
	defer overseeing.Wait()
	defer stop()
	<-ctx.Done()
	r.door.stop()
	late, cancel := context.WithTimeout(looking, lastStand)
	defer cancel()
	select {
	case <-await.Beside(r.serving.Wait):
	case <-late.Done():
		r.cfg.Log.Error("the receiver stops although streams on a hung disk have not ended")
	}
	for _, ended := range helpers {
		select {
		case <-ended:
		case <-late.Done(): // the helper hangs on a disk
		}
	}
	r.door.Settle(late)
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
	r.streams.come(in)
	unwatch := diskio.Watch(wire.SenderTimeout, &in.beat, in.open.Load, func() { wire.Cut(conn) })
	defer unwatch()

	written := make(chan error, 1)
	go func() { written <- in.out.run(conn) }()
	ran := make(chan error, 1)
	go func() {
		defer r.streams.gone(in)
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

// VaultDir is where an agent with that data directory keeps its vault.
func VaultDir(dataDir string) string { return filepath.Join(dataDir, "vault") }

// atomicCount counts the blocks of a stream that are durable here.
type atomicCount struct{ blocks, bytes atomic.Int64 }

func (c *atomicCount) add(bytes int64) {
	c.blocks.Add(1)
	c.bytes.Add(bytes)
}
