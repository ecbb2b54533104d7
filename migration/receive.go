package migration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// ReceiverConfig is what a Receiver needs to know of its node.
type ReceiverConfig struct {
	Stores []*Store
	Vault  *Vault

	// Room says how many bytes may still be written below a path.
	Room func(path string) (int64, error)
	// Admit says why nothing is taken from that node now, and when to ask again; "" admits.
	Admit func(node string) (reason string, retry time.Duration)
	// Landed is told of blocks once they are durable here.
	Landed func([]Held)
	// MaxStreams bounds the streams served at once.
	MaxStreams int
	Log        *slog.Logger
}

// Receiver takes blocks from leaving peers, makes them durable, and only then sends their receipts. Its Run runs once;
// Serve serves any number of streams beside it.
type Receiver struct {
	cfg    ReceiverConfig
	stores map[string]*Store
	commit *committer

	mu       sync.Mutex
	reserved map[string]int64 // by path: promised to blocks under way
	streams  int
	stopped  bool
	owing    int           // blocks that were accepted whole and have no receipt yet
	settled  chan struct{} // closed and replaced when owing comes down to 0

	serving sync.WaitGroup
}

// NewReceiver prepares a receiver and clears away what an interrupted one left in the stores.
func NewReceiver(cfg ReceiverConfig) (*Receiver, error) {
	r := &Receiver{cfg: cfg, stores: map[string]*Store{}, reserved: map[string]int64{}, settled: make(chan struct{})}
	r.commit = newCommitter(cfg.Vault, cfg.Landed)
	for _, s := range cfg.Stores {
		if s.Land == LandPlace {
			if err := s.sweep(); err != nil {
				return nil, err
			}
		}
		r.stores[s.Name] = s
	}
	return r, nil
}

// Run makes landed blocks durable until ctx ends and every stream being served has ended.
func (r *Receiver) Run(ctx context.Context) error {
	commits, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- r.commit.run(commits) }()
	<-ctx.Done()
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.serving.Wait()
	stop()
	return <-ended
}

// Room is what the receiver would grant a sender now: the room of the best place that blocks may land in.
func (r *Receiver) Room() int64 {
	best := int64(0)
	for _, p := range r.places() {
		best = max(best, r.room(p))
	}
	return best
}

func (r *Receiver) places() []string {
	all := []string{r.cfg.Vault.dir}
	for _, s := range r.cfg.Stores {
		if s.Land == LandPlace {
			all = append(all, s.Paths...)
		}
	}
	return all
}

// room is 0 where it cannot be found out: unknown is not plenty.
func (r *Receiver) room(p string) int64 {
	free, err := r.cfg.Room(p)
	if err != nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, free-r.reserved[p])
}

func (r *Receiver) reserve(p string, bytes int64) error {
	free, err := r.cfg.Room(p)
	if err != nil {
		return fmt.Errorf("room of %s: %w", p, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if has := free - r.reserved[p]; has < bytes {
		return &FullError{NeedBytes: bytes, HasBytes: max(0, has)}
	}
	r.reserved[p] += bytes
	return nil
}

func (r *Receiver) unreserve(p string, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved[p] -= bytes
}

// FullError says that a node has no room for a block.
type FullError struct{ NeedBytes, HasBytes int64 }

func (e *FullError) Error() string {
	return fmt.Sprintf("full: need %d bytes, has %d", e.NeedBytes, e.HasBytes)
}

// accept counts a whole block in until answered, unless nothing is taken any more. It counts first: whoever makes Admit
// refuse and then calls Settle has seen every block that was accepted.
func (r *Receiver) accept(node string, bytes int64) error {
	r.mu.Lock()
	r.owing++
	r.mu.Unlock()
	err := r.turnAway(node, bytes)
	if err != nil {
		r.answered()
	}
	return err
}

// turnAway is what a sender is told while Admit refuses: that there is no room, so that it asks another at once.
func (r *Receiver) turnAway(node string, bytes int64) error {
	if reason, _ := r.cfg.Admit(node); reason != "" {
		return fmt.Errorf("%s: %w", reason, &FullError{NeedBytes: bytes})
	}
	return nil
}

func (r *Receiver) answered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owing--; r.owing == 0 {
		close(r.settled)
		r.settled = make(chan struct{})
	}
}

// Settle waits, while ctx lasts, until every block that was accepted rests here. Once Admit refuses, what is here then is
// all that there will be.
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
func (r *Receiver) enter(node string) (refuse, bool) {
	if reason, retry := r.cfg.Admit(node); reason != "" {
		return refuse{reason, retry.Milliseconds()}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return refuse{"the agent is stopping", 5000}, false
	}
	if r.streams >= r.cfg.MaxStreams {
		return refuse{fmt.Sprintf("busy: %d streams are being served, at most %d", r.streams, r.cfg.MaxStreams), 1000}, false
	}
	r.streams++
	r.serving.Add(1)
	return refuse{}, true
}

func (r *Receiver) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams--
	r.serving.Done()
}

const (
	// greetingTimeout is how long a stream may take from its first byte (TLS included) to its grant.
	greetingTimeout = 10 * time.Second
	// senderTimeout is how long a sender may fall silent inside a block. Its disk may be slow; it must not hold room and a
	// stream here for ever. Between blocks it may wait as long as its machine lives: TCP's keep-alive tells (conn.go).
	senderTimeout = 2 * time.Minute
	// lastWords is how long a sender gets to take its last receipts.
	lastWords = 5 * time.Second
)

// Serve takes what one sender sends over a connection whose other end is known to be that node, until the sender closes
// it or ctx ends. What was complete by then still gets its receipt. It closes conn.
func (r *Receiver) Serve(ctx context.Context, conn net.Conn, node string) error {
	defer cut(conn)
	greeting := time.AfterFunc(greetingTimeout, func() { cut(conn) })
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
	defer r.leave()
	greeting.Stop()
	began := time.Now()
	defer func() {
		if n := in.kept.blocks.Load(); n > 0 {
			r.cfg.Log.Info("received", "node", node, "blocks", n, "bytes", in.kept.bytes.Load(), "took", time.Since(began).Round(time.Millisecond))
		}
	}()
	unwatch := watch(senderTimeout, &in.beat, in.open.Load, func() { cut(conn) })
	defer unwatch()

	written := make(chan error, 1)
	go func() { written <- in.out.run(conn) }()
	err = in.run()
	in.close()
	in.owed.Wait() // receipts for what is being committed
	in.out.close()
	taken := time.AfterFunc(lastWords, func() { cut(conn) })
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
	conn.Close() // in good order: the sender sees that nothing was cut off
	return nil
}

// intact reads back what landed earlier, and says what is wrong with it. A receipt for it is a promise like any other.
func (r *Receiver) intact(old record) error {
	for i := range old.Members {
		c, err := openLanded(r.cfg.Vault, r.stores[BlockID(old.ID).Store()], old, i)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, c)
		if err := errors.Join(err, c.Close()); err != nil {
			return err
		}
	}
	return nil
}

// VaultDir is where an agent with that data directory keeps its vault.
func VaultDir(dataDir string) string { return filepath.Join(dataDir, "vault") }

// atomicCount counts the blocks of a stream that are durable here.
type atomicCount struct{ blocks, bytes atomic.Int64 }

func (c *atomicCount) add(bytes int64, verdicts ...verdict) {
	for _, v := range verdicts {
		if v.Code == verdictDurable {
			c.blocks.Add(1)
			c.bytes.Add(bytes)
		}
	}
}
