package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/receiver"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// Peer is another node that may take blocks.
type Peer struct {
	Node       string
	Address    string
	Zone       string
	Pool       string
	RoomBytes  int64    // in all
	VaultBytes *int64   // of these, for blocks of other stores than Places; nil: not told
	Places     []string // the stores whose blocks land in their place there
	Advised    bool     // it is under a notice for which it does not leave: it takes what nobody else does
	// The largest block that it may have room for, and the largest that goes to its vault; 0: not told.
	LargestBytes, LargestVaultBytes int64
}

// DrainConfig is what a drain needs.
type DrainConfig struct {
	Node     string
	Zone     string
	Pool     string
	Incident string
	Dir      string // of this incident: plan and manifest
	Stores   []*inventory.Store
	Vault    *vault.Vault
	Told     *Appraisals // what programs said that blocks are worth; nil: nothing

	// Disks under the stores and the vault. Nil: all are well, until one does not give a block back.
	Disks diskio.Disks
	// Wary says that the disk of the catalog may hang, though Disks does not know that yet.
	Wary bool
	// Index knows what the stores had before. Nil: there is none, and all of the stores is looked through.
	Index *inventory.Index
	// Only limits the drain to what lies below these directories: to a sick disk of a node that is well otherwise. Empty: all.
	Only []string
	// Once does not wait for the stores to become quiet: another drain of the same directory follows.
	Once bool
	// Again limits the drain to these blocks, which the drain before in the same Dir had moved. It goes on with that drain's
	// account. Empty: all.
	Again []Broken
	// Adopted says that all that the account has was moved by earlier drains (Adopt), and that no run of this one has looked for it.
	Adopted bool
	// Unwritten are the lines of the account that the drain before could not write, where this one goes on with it.
	Unwritten []byte
	// MostBytes bounds what plan and account take in Dir, which may be memory: beyond that, Dir is full. 0: its disk bounds them.
	MostBytes int64
	// Ballast is given up when the disk of Dir has no room for the names of what is lost. Nil: there is none.
	Ballast *durable.Ballast

	// Settle waits until what this node has accepted from others rests in its vault. The node accepts no more. Nil: it never did.
	Settle func(ctx context.Context)
	// Advised reports whether blocks that no other peer takes may go to peers that are advised to go. Nil: they may not. A drain that
	// copies ahead must then carry Own alone, or blocks would go round among the advised.
	Advised func() bool
	// Own carries what was born here, and nothing that landed here.
	Own bool
	// Alone reports whether the coordinator does not answer: peers keep a part of their room and streams for such drains. Nil: it
	// answers.
	Alone func() bool
	// Peers are those last heard of; asked again while the drain runs.
	Peers func() []Peer
	// Missed reports whether a node that is not among Peers may be so in a moment, as it restarts. Nil: none may.
	Missed func() bool
	// Dial connects to a peer whose identity it has verified, speaking Protocol.
	Dial func(ctx context.Context, p Peer) (net.Conn, error)
	// Earlier are directories of drains of this node that were withdrawn: what they moved may have changed since.
	Earlier []string
	// Forget has a holder remove a version of a block. Nil: peers keep what is out of date.
	Forget func(ctx context.Context, h reading.Holder, id inventory.BlockID, tag string) error
	// Where returns the address at which a node is read that is not among Peers: it was a peer of an earlier run, or blocks came from
	// it. Empty: the node is gone.
	Where func(ctx context.Context, node string) (address string, err error)
	// AtHome asks a node that blocks came from what it has of them. Nil: nobody is asked.
	AtHome func(ctx context.Context, home reading.Holder, about []reading.Version) (reading.AtHome, error)
	// WhoElse returns the other nodes that hold these blocks, which this node has. It is set where this node was away and has yet to
	// catch up. Nil: nobody is asked.
	WhoElse func(ctx context.Context, blocks []inventory.BlockID) (holders []reading.Holder, sure bool, err error)
	// Namesake makes the holders of these blocks look at what they have that was born on this node: another machine had this node's
	// name before, and this machine's accounts say nothing of what became of that one's blocks. Nil: there was none.
	Namesake func(ctx context.Context, blocks []inventory.BlockID) error
	// ForgetElsewhere makes all holders but one remove a version of a block: that one may have handed it on. Nil: they keep it.
	ForgetElsewhere func(ctx context.Context, but string, id inventory.BlockID, tag string) error
	// Over says which apps are over. Nil: none is.
	Over receiver.Over
	// Lapsed says which of the blocks that earlier runs moved nobody holds any more. Nil: all are held.
	Lapsed Lapsed
	// Absent are the peers about whose blocks Lapsed is asked. Empty: about those of all.
	Absent []string
	// OverChanged returns a channel that is closed when Over may have another answer. Nil, or one that is never closed: Over is asked
	// each minute.
	OverChanged func() <-chan struct{}
	// Connections to each peer: one loses on small blocks (nothing overlaps), more than four gain nothing (measured).
	Connections int
	// MaxBytesPerSecond caps the whole drain; 0: no cap.
	MaxBytesPerSecond int64
	// Fallback takes what no peer takes. Nil: nothing does.
	Fallback *lastresort.Storage
	// Late is why what is here has not been moved, where time is up before the drain begins (Drain.TimeUp of the one before): the drain
	// names what that one had no plan for, and goes on with its account. Empty: time is not up.
	Late string
	// Until is when sending will end, as far as is known now; it may move. Nil, or the zero time: when Run's context ends.
	Until func() time.Time
	Log   *slog.Logger
}

// Drain empties the node's stores into its peers. It is used once.
type Drain struct {
	cfg DrainConfig
	cargo
	carriers *carriers
	peers    *peers
	out      *outflow
	lanes    *lanes
	fallback *fallback // nil: there is none
	claims   *claims
	homes    *homes
	survey   *survey
}

// cargo is what a drain carries, and what became of it.
type cargo struct {
	log     *slog.Logger
	source  *source
	plan    *plan.Plan
	account *account
	endings *endings
}

// Phase is where a drain stands.
type Phase string

const (
	PhaseScanning Phase = "scanning" // still looking, already sending
	PhaseSending  Phase = "sending"
	PhaseDrained  Phase = "drained" // everything is accounted for
)

// Progress is a snapshot of a drain.
type Progress struct {
	Phase          Phase
	Found          inventory.Count // blocks to carry that the scan has met so far
	Moved          inventory.Count
	Lost           inventory.Count
	Skipped        inventory.Count
	BytesPerSecond int64
	Peers          []PeerProgress
	Awaits         []string // directories on disks that do not answer, once nothing else is left
}

// PeerProgress is a peer's part.
type PeerProgress struct {
	Node    string
	Moved   inventory.Count // by earlier runs of the drain, too, as in Progress
	Trouble string          // empty: well
}

// NewDrain prepares a drain in cfg.Dir. If an earlier run of the same drain left its account there, what it moved is not
// sent again.
func NewDrain(cfg DrainConfig) *Drain {
	cfg.Only = diskio.Cleaned(cfg.Only)
	cfg.Stores = inventory.Renewed(cfg.Stores, diskio.OrWell(cfg.Disks), cfg.Log)
	source, out := newSource(cfg), newOutflow(cfg)
	for _, s := range cfg.Stores {
		s.Watch(cfg.Disks)
	}
	cfg.Vault.Watch(cfg.Disks)
	account, most := openAccount(cfg, source)
	source.history = account.history
	account.plan = plan.New(plan.Config{Dir: cfg.Dir, Spools: most, Stores: cfg.Stores, Where: source.where, Told: cfg.Told.of})
	cargo := cargo{log: cfg.Log, source: source, plan: account.plan, account: account, endings: newEndings(cfg, source)}
	carriers, traffic := newCarriers(source, account.plan), &traffic{}
	peers := newPeers(cfg, cargo, carriers, traffic, out)
	homes := newHomes(cfg, cargo)
	claims := newClaims(cfg, cargo, homes)
	d := &Drain{
		cfg: cfg, cargo: cargo, carriers: carriers, peers: peers, out: out, claims: claims, homes: homes, survey: newSurvey(cfg, cargo, claims, homes),
		lanes: &lanes{cargo: cargo, carriers: carriers, peers: peers, out: out, traffic: traffic, incident: cfg.Incident, alone: cfg.Alone, dial: cfg.Dial},
	}
	if cfg.Fallback != nil {
		d.fallback = newFallback(cfg.Fallback, cargo, carriers, peers, out)
	}
	return d
}

// Limit changes the cap on the whole drain while it runs; 0: no cap.
func (d *Drain) Limit(bytesPerSecond int64) { d.out.limit.set(bytesPerSecond) }

// receiptGrace is how long a lane waits for receipts after sending has stopped. It is part of the tail that every
// deadline keeps back (5 s or more).
const receiptGrace = 2 * time.Second

// Run moves everything, or as much as can be before ctx ends; blocks that no peer has by then are lost, each with its
// reason. It returns an error only when the account itself could not be kept.
//
// It returns soon after ctx ends even if a disk then hangs under a scan or a lane: nothing can end those, so they are
// left behind, and what they held is accounted for without them.
func (d *Drain) Run(ctx context.Context) (manifest.Summary, error) {
	work, stop := context.WithCancel(ctx)
	defer stop()
	d.peers.took(time.Now())
	var working sync.WaitGroup
	d.carriers.look(time.Now())
	go d.endings.learn(work) // a disk may hang under it
	working.Go(func() { d.lanes.oversee(work) })
	working.Go(func() {
		defer d.plan.Seal()
		asking, homing := await.Beside(func() { d.claims.check(work) }), await.Beside(func() { d.homes.ask(work) })
		d.survey.untilQuiet(work)
		d.claims.seal()
		<-asking
		d.homes.seal()
		<-homing
	})
	working.Go(func() {
		defer stop() // every block is settled
		d.runLanes(work)
	})
	late, cancel := linger(ctx, receiptGrace+time.Second)
	defer cancel()
	select {
	case <-await.Beside(working.Wait):
	case <-late.Done():
		d.log.Error("the drain ends although calls on a hung disk or connection have not returned")
		d.carriers.surrender()
	}
	d.peers.releaseAllParts()
	d.nameLost(ctx)
	if d.account.history.severalLines() {
		d.account.ledger.OnceMore()
	}
	d.withdraw(ctx)
	sum, err := d.account.close()
	d.survey.setPhase(PhaseDrained) // once its figures are those of the account
	if ctx.Err() == nil {
		d.shorten(ctx)
	}
	return sum, errors.Join(err, d.plan.Close())
}

// runLanes keeps lanes to some of the peers until all blocks are settled or ctx ends.
func (d *Drain) runLanes(ctx context.Context) {
	if d.plan.First(ctx) != nil || d.plan.Settled() {
		return // no peer is bothered for nothing
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d.peers.hear(ctx) // before the fallback asks whether there are any
	var lanes sync.WaitGroup
	defer lanes.Wait()
	if d.fallback != nil {
		var upload func(helps bool)
		upload = func(helps bool) {
			if d.fallback.run(ctx, helps, func() { lanes.Go(func() { upload(true) }) }) {
				stop()
			}
		}
		for range d.fallback.Streams {
			lanes.Go(func() { upload(false) })
		}
	}
	tick := time.NewTicker(lookForPeers)
	defer tick.Stop()
	for {
		for _, p := range d.peers.wanted() {
			lanes.Go(func() {
				defer d.peers.ended(p)
				if d.lanes.run(ctx, p) {
					stop()
				}
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-d.peers.vacant:
		case <-tick.C:
			if d.plan.Settled() {
				stop() // a lane whose peer is away has nobody to hear it from
				return
			}
			d.peers.hear(ctx)
		}
	}
}

// nameLost names everything that is left as lost.
func (d *Drain) nameLost(ctx context.Context) {
	why := tooLate
	stopped := !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	if stopped {
		why = "the drain was stopped"
	}
	if d.cfg.Once { // what was not planned, the drain that follows names; and if there is time left, it tries all of it
		d.account.late.Store(!stopped)
	} else {
		d.account.loseUnseen() // first: a version of such a block that waits in the plan is older
	}
	d.survey.heedClock()     // before the rest of the plan is lost: some of it may have been moved by another entry
	peers := d.peers.words() // for all blocks alike: with a hundred peers they take as long as the lines of ten blocks
	unread := d.plan.Rest(func(e plan.Entry, barred string) {
		if d.account.history.outdated(e.Block) || e.Spare && !stopped && (d.cfg.Once || d.homes.left.add(e.Block)) {
			return
		}
		reason := why
		if detail := d.lastWords(cmp.Or(e.Met().Why, peers)); detail != "" {
			reason += ": " + detail
		}
		d.account.lose(e, cmp.Or(barred, reason))
	})
	d.homes.leaveBehind(ctx, why)
	if d.cfg.Once {
		return
	}
	if len(d.cfg.Again) == 0 {
		d.survey.looks.end(d.source.dirs(), why)
	}
	for dir, why := range d.survey.looks.unreadable() { // nobody knows the names of what is there
		if d.source.concernsAny([]string{dir}) {
			d.account.ledger.Add(manifest.Entry{ID: fmt.Sprintf("(what lies in %s)", dir), Outcome: manifest.Lost, Reason: why})
		}
	}
	if unread.Blocks > 0 {
		d.log.Error("part of the plan cannot be read back: its blocks are lost and not named", "blocks", unread.Blocks, "bytes", unread.Bytes)
		d.account.ledger.AddUnnamed(unread, "the plan could not be read back from "+d.cfg.Dir)
	}
}

// linger returns a context that outlives ctx by that long and ends for the same cause.
func linger(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	undo := context.AfterFunc(ctx, func() { time.AfterFunc(by, func() { cancel(context.Cause(ctx)) }) })
	return late, func() { undo(); cancel(nil) }
}

// lastWords says what most likely kept a block from leaving, with the words of the peers, or of the last one that had it.
func (d *Drain) lastWords(words string) string {
	if d.fallback == nil || strings.Contains(words, d.fallback.state.Node) {
		return words
	}
	if own := d.fallback.words(); own != "" {
		return strings.TrimPrefix(words+"; "+own, "; ")
	}
	return words
}

// TimeUp is why what the drain leaves behind when its time is up was not moved, as its account would say of a block about which no more is
// known.
func (d *Drain) TimeUp() string {
	if words := d.lastWords(d.peers.words()); words != "" {
		return tooLate + ": " + words
	}
	return tooLate
}

// Progress tells how far the drain is.
func (d *Drain) Progress() Progress {
	phase, awaits := d.survey.stands() // first: PhaseDrained says that the figures are the last
	p := d.account.progress()
	p.Phase, p.Awaits, p.BytesPerSecond, p.Peers = phase, awaits, d.out.bytesPerSecond(), d.peers.progress()
	if d.fallback != nil {
		if part, some := d.fallback.progress(); some {
			p.Peers = append(p.Peers, part)
		}
	}
	for node, took := range d.account.history.took {
		at := slices.IndexFunc(p.Peers, func(e PeerProgress) bool { return e.Node == node })
		switch {
		case at >= 0:
			p.Peers[at].Moved = p.Peers[at].Moved.Plus(took)
		case p.Moved.Blocks+p.Lost.Blocks >= p.Found.Blocks: // else blocks wait, and it may be none of those that they wait for
			p.Peers = append(p.Peers, PeerProgress{node, took, ""})
		}
	}
	slices.SortFunc(p.Peers, func(a, b PeerProgress) int { return strings.Compare(a.Node, b.Node) })
	return p
}

// Entries yields the manifest of a drain that has ended, with the lines that its disk did not take.
func (d *Drain) Entries() iter.Seq2[manifest.Entry, error] { return d.account.ledger.Entries() }

// Dir is where the drain keeps its account.
func (d *Drain) Dir() string { return d.cfg.Dir }

// Unwritten are the lines of the account that its disk did not take.
func (d *Drain) Unwritten() []byte { return d.account.ledger.Unwritten() }
