// Package heartbeat is the agent's side of the Membership service: it registers the node, renews its lease, carries status
// up, and brings the coordinator's directive and the list of peers down.
//
// An absent coordinator is a normal state here, never an error that ends anything: [Client.Run] returns only when its
// context ends, [Client.Peers] answers with what was last heard (kept in a file, so a restarted agent can drain without
// any coordinator), and the single calls (WorkerDecommission, Goodbye, ...) return their error to a caller who carries on
// without. The package decides nothing: what a directive or a lost coordinator means is the agent's business. Bytes of
// blocks never travel through it.
//
// All methods may be called by several goroutines, before, during and after Run.
package heartbeat

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
)

// farewell is how long Run waits, once its context has ended, for writes to a disk that may hang. A write that hangs in the
// kernel cannot be ended, and must not keep the machine from stopping.
const farewell = 5 * time.Second

// Config says who the node is and where its coordinators are.
type Config struct {
	Node        string // the name in the node's certificate
	Incarnation string // random, made once per data directory
	PeerAddress string // where other nodes reach this one
	Version     string
	// Place returns the node's zone and pool, by which peers are chosen. It is asked before every beat, so that a place
	// learned late is told then. Nil: none is told.
	Place func() (zone, pool string)

	Coordinators []string    // host:port each, tried in this order until one leads
	TLS          *tls.Config // nil: no TLS, for tests only
	// Dial reaches a coordinator; it must give up when its context ends. Nil: a plain net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	PeersFile   string // where the peers are kept across restarts; empty: nowhere
	RevokedFile string // likewise whose certificates are refused

	// Status is asked before every beat and must not block; this package changes what it returns. Nil: no status is sent.
	Status func() *api.Status
	// Revoked is told whose certificates made before some time are refused: by New, from the file, and whenever the list
	// changes. May be nil.
	Revoked func([]*api.Revoked)
	// Held yields every block that landed here from others, each until the next; it is read by every full report. Nil: none.
	Held func() iter.Seq2[*api.HeldBlock, error]

	Log *slog.Logger // nil: nothing is logged
}

func (c Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Node == "" {
		fault("node: is empty: name the node as in its certificate")
	}
	if c.Incarnation == "" {
		fault("incarnation: is empty: it tells this node from an older one of the same name")
	}
	if len(c.Coordinators) == 0 {
		fault("coordinators: is empty: name at least one host:port")
	}
	for i, address := range c.Coordinators {
		if _, _, err := net.SplitHostPort(address); err != nil {
			fault("coordinators[%d]: %q: must be host:port", i, address)
		}
	}
	return errors.Join(faults...)
}

// Client is one node's link to its coordinators.
type Client struct {
	cfg     Config
	log     *slog.Logger
	links   *links
	wishes  wishes
	peers   *peerBook
	revoked *revokedBook
	outbox  *outbox
	broken  brokenWords
	again   agains
	ends    ends
	lapses  ends
	nudge   chan struct{}
	unsaid  chan struct{}      // see Unaccounted
	back    chan time.Duration // see Back

	namesake atomic.Bool // see Namesake
	quiet    atomic.Bool // see Unavailable

	sequence sequence

	mu           sync.Mutex // guards what follows
	lastAnswered time.Time
	beatTrouble  string
	tellTrouble  string
	reportWithin time.Duration // as the coordinator wished at the last registration
}

// New makes a client and loads what was last heard of peers and revoked certificates. It dials nobody.
func New(cfg Config) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	c := &Client{
		cfg:     cfg,
		log:     cfg.Log,
		links:   newLinks(cfg),
		peers:   loadPeers(cfg.PeersFile, cfg.Node, cfg.Log),
		revoked: loadRevoked(cfg.RevokedFile, cfg.Log),
		outbox:  newOutbox(),
		nudge:   make(chan struct{}, 1),
		unsaid:  make(chan struct{}, 1),
		back:    make(chan time.Duration, 1),
	}
	if _, all := c.revoked.has(); len(all) > 0 && cfg.Revoked != nil {
		cfg.Revoked(all)
	}
	return c, nil
}

// Run registers the node and beats until ctx ends, then returns nil. It is called once. A coordinator that is away, hangs
// or refuses is logged when that begins and when it ends, and tried again for ever.
func (c *Client) Run(ctx context.Context) error {
	c.links.keep()
	defer c.links.letGo()

	// Beats, reports and the writing of files run apart: a long report or a slow disk must not silence the node.
	var beside sync.WaitGroup
	beside.Go(func() { c.tell(ctx) })
	beside.Go(func() { c.peers.save(ctx) })
	beside.Go(func() { c.revoked.save(ctx) })
	newPulse(c).run(ctx)

	select {
	case <-await.Beside(beside.Wait):
	case <-time.After(farewell):
		c.log.Error("a report, the peers file or the list of revoked certificates is stuck on a disk: leaving without it", "took", farewell)
	}
	return nil
}

// Nudge asks for a beat now, because the status changed in a way that should not wait for the next one.
func (c *Client) Nudge() { await.Mark(c.nudge) }

// Health says which coordinator is in use, when one last answered a beat (zero: never yet), and what is wrong at present
// (empty: nothing).
func (c *Client) Health() (address string, lastAnswered time.Time, trouble string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.links.address(), c.lastAnswered, cmp.Or(c.beatTrouble, c.tellTrouble)
}

// Peers returns the nodes that may take blocks, as last heard from a coordinator by this process or the one before it.
func (c *Client) Peers() []*api.Peer { return c.peers.list() }

// Missed returns when a peer was last no longer among them (zero: not since the start): it has no room any more, it is
// leaving, or it restarts.
func (c *Client) Missed() time.Time { return c.peers.missedAt() }

// Believe says which decommission a journal remembers from before a restart: NextDirective then returns nil when the
// coordinator no longer wishes it. Call it before Run.
func (c *Client) Believe(decommission string) {
	c.wishes.believe(&api.Directive{Decommission: decommission})
}

// NextDirective blocks until the coordinator's wish for this node differs from what NextDirective last returned: another
// decommission, the same one with its remaining time moved by more than two seconds, or nil when it is no longer wished.
// The remaining time is as of the return. Several callers share what is returned: each change goes to one of them.
func (c *Client) NextDirective(ctx context.Context) (*api.Directive, error) {
	return c.wishes.next(ctx)
}

// Apps returns the apps that ran here and still run elsewhere, as the newest reply had them; false: there was none since
// the start. They change without NextDirective returning: the wish is the same.
func (c *Client) Apps() (apps []string, heard bool) { return c.wishes.elsewhere() }

// Unaccounted receives when the coordinator says that it lacks an account that the status calls given: the coordinator began
// anew, or from an older snapshot.
func (c *Client) Unaccounted() <-chan struct{} { return c.unsaid }

// Back receives, when a beat is answered after some were not, or after this machine stood still or slept, for how long none
// was: other nodes may have taken this one for gone. At the start that is the longest duration there is.
func (c *Client) Back() <-chan time.Duration { return c.back }

// Namesake reports whether a coordinator knew another machine by this node's name before: other nodes may hold blocks that
// were born there, of which this node has no account. It stays true when a later coordinator has forgotten that machine.
func (c *Client) Namesake() bool { return c.namesake.Load() }

func (c *Client) paceReports(within time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reportWithin = min(within, mostInterval)
}

// answered notes that a beat was answered. In quiet times that is no longer than quiet after the one before.
func (c *Client) answered(quiet time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	silent := now.Sub(c.lastAnswered)
	silent = max(silent, now.Round(0).Sub(c.lastAnswered.Round(0))) // while a machine sleeps, only its wall clock goes on
	if c.lastAnswered.IsZero() || c.beatTrouble != "" || silent > quiet {
		select {
		case before := <-c.back: // nobody has received the last one yet
			silent = max(silent, before)
		default:
		}
		c.back <- silent // nobody else puts any in
	}
	c.lastAnswered, c.beatTrouble = now, ""
}

func (c *Client) beatFailed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beatTrouble = plain(err)
}

func (c *Client) tellDone(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tellTrouble = ""
	if err != nil {
		c.tellTrouble = plain(err)
	}
}
