package migration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"syscall"
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

// Receiver takes blocks from leaving peers, makes them durable, and only then sends their receipts.
type Receiver struct {
	cfg    ReceiverConfig
	stores map[string]*Store
	commit *committer

	mu       sync.Mutex
	reserved map[string]int64 // by path: promised to blocks under way
	streams  int
	stopped  bool

	serving sync.WaitGroup
}

// NewReceiver prepares a receiver and clears away what an interrupted one left in the stores.
func NewReceiver(cfg ReceiverConfig) (*Receiver, error) {
	r := &Receiver{cfg: cfg, stores: map[string]*Store{}, reserved: map[string]int64{}}
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

// Serve takes what one sender sends over a connection whose other end is known to be that node, until the sender closes
// it or ctx ends. It closes conn.
func (r *Receiver) Serve(ctx context.Context, conn net.Conn, node string) error {
	defer conn.Close()
	undo := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer undo()
	br := bufio.NewReaderSize(conn, 64<<10)
	in := &inbound{r: r, node: node, frames: newFrameReader(br), buffered: br.Buffered, sum: newSummer(), out: newOutbox()}
	switch admitted, err := in.handshake(conn); {
	case err != nil:
		return fmt.Errorf("receive from %s: %w", node, err)
	case !admitted:
		return nil
	}
	defer r.leave()
	written := make(chan error, 1)
	go func() { written <- in.out.run(conn) }()
	err := in.run()
	in.close()
	in.owed.Wait() // receipts for what is being committed
	in.out.close()
	if wrote := <-written; err == nil {
		err = wrote
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("receive from %s: %w", node, err)
	}
	return nil
}

// inbound is one stream being received.
type inbound struct {
	r        *Receiver
	node     string
	frames   *frameReader
	buffered func() int
	out      *outbox

	seg     *segment
	broken  bool // the segment failed to take bytes
	pending []landed
	bytes   int64 // of pending
	owed    sync.WaitGroup

	// The block under way:
	transfer uint32
	opening  opening
	landing  landing // nil: none, or its frames are passed over because it was refused
	place    string  // where its room is reserved
	member   int
	left     int64 // of the member
	sum      summer
	open     bool
}

// handshake answers a hello. After a grant the stream counts until leave is called.
func (in *inbound) handshake(w io.Writer) (admitted bool, err error) {
	f, err := in.frames.next()
	if err != nil {
		return false, err
	}
	if f.typ != frameHello {
		return false, fmt.Errorf("frame of type %d before hello", f.typ)
	}
	h, err := parseHello(f.payload)
	if err != nil {
		return false, err
	}
	no, ok := refuse{Reason: fmt.Sprintf("the certificate is for %q, the stream says %q", in.node, h.Node), RetryMillis: 60000}, false
	if h.Node == in.node {
		no, ok = in.r.enter(in.node)
	}
	if !ok {
		_, err := w.Write(appendFrame(nil, frameRefuse, 0, no.append(nil)))
		return false, err
	}
	if _, err := w.Write(appendFrame(nil, frameGrant, 0, grant{in.r.Room()}.append(nil))); err != nil {
		in.r.leave()
		return false, err
	}
	return true, nil
}

func (in *inbound) run() error {
	for {
		f, err := in.frames.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch f.typ {
		case frameOpen:
			err = in.begin(f)
		case frameData:
			err = in.data(f)
		case frameClose:
			err = in.end(f)
		case frameAbort:
			in.abandon()
		default:
			err = fmt.Errorf("frame of type %d from a sender", f.typ)
		}
		if err != nil {
			return err
		}
		if len(in.pending) > 0 && (in.bytes >= 1<<20 || in.buffered() == 0) {
			in.flush()
		}
	}
}

// begin decides where a block will rest. A refusal is the sender's business, not a fault of the stream.
func (in *inbound) begin(f frame) error {
	if in.open {
		return fmt.Errorf("transfer %d begins inside transfer %d", f.transfer, in.transfer)
	}
	o, err := parseOpening(f.payload)
	if err != nil {
		return err
	}
	in.open, in.transfer, in.opening, in.landing = true, f.transfer, o, nil
	in.member, in.left = 0, o.Members[0].Bytes
	in.sum.reset()
	in.sum.member(in.left)
	if err := in.land(f, o); err != nil {
		in.refuse(err)
	}
	return nil
}

func (in *inbound) land(f frame, o opening) error {
	if reason, _ := in.r.cfg.Admit(in.node); reason != "" {
		return &FullError{NeedBytes: o.bytes()} // we are leaving ourselves, or have been told to take nothing
	}
	if s := in.r.stores[BlockID(o.ID).Store()]; s != nil && s.Land == LandPlace && s.Layout == o.Layout {
		old, err := in.r.cfg.Vault.catalog.get(BlockID(o.ID))
		l, occupied := landInPlace(s, o, err == nil && len(old.Placed) > 0)
		if !errors.Is(occupied, errOccupied) {
			if occupied != nil {
				return occupied
			}
			if err := in.r.reserve(s.Paths[l.files[0].root], o.bytes()); err != nil {
				return err
			}
			in.landing, in.place = l, s.Paths[l.files[0].root]
			return nil
		}
		// What is there is not ours to replace: the vault takes the block.
	}
	if err := in.r.reserve(in.r.cfg.Vault.dir, o.bytes()); err != nil {
		return err
	}
	in.place = in.r.cfg.Vault.dir
	l, err := in.landInVault(f)
	if err != nil {
		in.r.unreserve(in.place, o.bytes())
		return err
	}
	in.landing = l
	return nil
}

func (in *inbound) landInVault(f frame) (landing, error) {
	if in.seg != nil && (in.broken || in.seg.end >= segmentBytes) {
		in.flush()
		in.r.cfg.Vault.release(in.seg, in.broken)
		in.seg, in.broken = nil, false
	}
	if in.seg == nil {
		seg, err := in.r.cfg.Vault.acquire()
		if err != nil {
			return nil, err
		}
		in.seg = seg
	}
	return landInVault(in.seg, f)
}

func (in *inbound) data(f frame) error {
	if !in.open || f.transfer != in.transfer {
		return fmt.Errorf("data for transfer %d, want %d", f.transfer, in.transfer)
	}
	for in.left == 0 {
		if in.member+1 == len(in.opening.Members) {
			return fmt.Errorf("transfer %d: more data than announced", f.transfer)
		}
		in.nextMember()
	}
	if want := min(in.left, ChunkBytes); int64(len(f.payload)) != want {
		return fmt.Errorf("transfer %d: chunk of %d bytes, want %d", f.transfer, len(f.payload), want)
	}
	in.left -= int64(len(f.payload))
	in.sum.chunk(f.sum)
	if in.landing == nil {
		return nil
	}
	if err := in.landing.data(in.member, f); err != nil {
		in.fail(err)
	}
	return nil
}

func (in *inbound) nextMember() {
	in.member++
	in.left = in.opening.Members[in.member].Bytes
	in.sum.member(in.left)
}

func (in *inbound) end(f frame) error {
	if !in.open || f.transfer != in.transfer {
		return fmt.Errorf("close of transfer %d, want %d", f.transfer, in.transfer)
	}
	for in.left == 0 && in.member+1 < len(in.opening.Members) {
		in.nextMember()
	}
	if in.left != 0 {
		return fmt.Errorf("transfer %d: closed with %d bytes missing", f.transfer, in.left)
	}
	sum := in.sum.sum()
	if string(f.payload) != string(sum[:]) {
		return fmt.Errorf("block %s: %w", in.opening.ID, errCorrupt)
	}
	in.open = false
	if in.landing == nil {
		return nil
	}
	l, err := in.finish(f, record{opening: in.opening, From: in.node, Landed: time.Now(), Sum: sum})
	if err != nil {
		in.fail(err)
		return nil
	}
	bytes, place := in.opening.bytes(), in.place
	l.transfer = in.transfer
	l.reply = func(v ...verdict) {
		in.r.unreserve(place, bytes)
		in.out.put(v...)
		in.owed.Done()
	}
	in.owed.Add(1)
	in.pending, in.bytes, in.landing = append(in.pending, l), in.bytes+bytes, nil
	return nil
}

// finish keeps what came, unless the same bytes are here already: then only the receipt is owed.
func (in *inbound) finish(f frame, r record) (landed, error) {
	old, err := in.r.cfg.Vault.catalog.get(BlockID(r.ID))
	switch {
	case err == nil && old.Sum == r.Sum && old.bytes() == r.bytes():
		in.landing.abort()
		return landed{record: old, already: true}, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		in.r.cfg.Log.Warn("landing a block over an unreadable record", "block", r.ID, "err", err)
	}
	return in.landing.finish(f, r)
}

// fail gives up the block under way because this node could not keep it.
func (in *inbound) fail(err error) {
	in.landing.abort()
	if _, ok := in.landing.(*vaultLanding); ok {
		in.broken = true // its buffer may have lost bytes: nothing more is appended
	}
	in.landing = nil
	in.r.unreserve(in.place, in.opening.bytes())
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = &FullError{NeedBytes: in.opening.bytes()}
	} else {
		in.r.cfg.Log.Warn("cannot land a block", "block", in.opening.ID, "node", in.node, "err", err)
	}
	in.refuse(err)
}

func (in *inbound) refuse(err error) {
	v := verdict{Transfer: in.transfer, Code: verdictFailed, Reason: err.Error()}
	if full, ok := errors.AsType[*FullError](err); ok {
		v.Code, v.Reason = verdictFull, full.Error()
	}
	in.out.put(v)
}

func (in *inbound) abandon() {
	in.open = false
	if in.landing == nil {
		return
	}
	in.landing.abort()
	in.landing = nil
	in.r.unreserve(in.place, in.opening.bytes())
}

// flush hands the finished blocks to the committer once their bytes are with the kernel.
func (in *inbound) flush() {
	if len(in.pending) == 0 {
		return
	}
	if in.seg != nil {
		if err := in.seg.w.Flush(); err != nil {
			in.broken = true
			in.lose(err)
			return
		}
	}
	in.r.commit.submit(in.pending)
	in.pending, in.bytes = nil, 0
}

// lose answers for blocks that were complete but whose segment did not take them.
func (in *inbound) lose(err error) {
	keep := in.pending[:0]
	for _, l := range in.pending {
		if l.segment == nil {
			keep = append(keep, l)
			continue
		}
		l.reply(verdict{Transfer: l.transfer, Code: verdictFailed, Reason: err.Error()})
	}
	if len(keep) > 0 {
		in.r.commit.submit(keep)
	}
	in.pending, in.bytes = nil, 0
}

func (in *inbound) close() {
	in.abandon()
	in.flush()
	if in.seg != nil {
		in.r.cfg.Vault.release(in.seg, in.broken)
	}
}

// VaultDir is where an agent with that data directory keeps its vault.
func VaultDir(dataDir string) string { return filepath.Join(dataDir, "vault") }
