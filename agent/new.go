package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/figures"
	"github.com/lifeboat/lifeboat/heartbeat"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/receiver"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/preemption"
)

// New opens what the agent keeps on disk and its listeners. It starts nothing: connections that come in before Run wait.
// After an error nothing stays open.
func New(ctx context.Context, cfg Config, deps Deps) (_ *Agent, err error) {
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Listen == nil {
		deps.Listen = net.Listen
	}
	if deps.Dial == nil {
		deps.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	got, file := deps.Identity.Name(), cfg
	if got.Role != certs.RoleNode || cfg.Node.Name != "" && got.Name != cfg.Node.Name {
		return nil, fmt.Errorf("identity is %q, want node %q", got, cfg.Node.Name)
	}
	cfg.Node.Name = got.Name
	a := &Agent{cfg: cfg, file: file, deps: deps, log: deps.Log, started: time.Now(), counts: newCounters(deps.Version)}
	a.counts.registry.MustRegister(figures.Now(a.figures))
	a.limits.Store(limitsOf(cfg))
	a.place.Store(&place{cfg.Node.Zone, cfg.Node.Pool})
	a.disks.monitor, a.disks.log = a.newMonitor(), a.log
	a.disks.closed = func(path string) bool { return a.evacuations.closed(path) }
	a.disk = a.newDisk()
	defer func() {
		if err != nil {
			for _, s := range a.stores {
				s.Unmake()
			}
			a.close()
		}
	}()
	if err := os.MkdirAll(cfg.DataDir, 0o750); err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	if err := a.openStores(); err != nil {
		return nil, err
	}
	// No other process has the vault open, so data_dir is this one's.
	if err := durable.Sweep(cfg.DataDir, filepath.Join(cfg.DataDir, "evacuations"), filepath.Join(cfg.DataDir, "tls")); err != nil {
		a.log.Warn("what a crash left behind cannot be removed", "err", err)
	}
	a.openRefuge(ctx)
	if err := a.openFallback(ctx); err != nil {
		return nil, err
	}
	if err := a.listen(); err != nil {
		return nil, err
	}
	a.openCourse()
	if err := a.openNotices(ctx); err != nil {
		return nil, err
	}
	if err := a.openHeartbeat(); err != nil {
		return nil, err
	}
	a.openReceiver()
	a.behind.fleet, a.behind.receiver, a.behind.fetch, a.behind.doubted = &a.fleet, a.receiver, a.reader.Fetch, make(chan string, mostDoubted)
	a.behind.is.Store(true) // until it has asked
	if a.at.page, err = a.pageHandler(); err != nil {
		return nil, err
	}
	if err := a.openWorkloads(); err != nil {
		return nil, err
	}
	a.at.blocks, a.at.calls, a.at.take = a.peerHandler(), a.socketServer(), a.receiver.Serve
	a.resume()
	return a, nil
}

func (a *Agent) openStores() (err error) {
	for _, s := range a.cfg.Stores {
		store, err := inventory.OpenStore(inventory.StoreConfig{Name: s.Name, Kind: s.Kind, Layout: s.Layout, Land: s.Land, Paths: s.Paths, Value: s.Value, Hints: s.hints()})
		if err != nil {
			return err
		}
		for _, path := range store.Made {
			a.log.Warn("a store's directory was not there: made; is its disk mounted?", "store", s.Name, "dir", path)
		}
		a.stores = append(a.stores, store)
	}
	a.disks.stores = a.stores
	if a.vault, err = vault.Open(receiver.VaultDir(a.cfg.DataDir), a.cfg.Receive.Paths...); err != nil {
		return err
	}
	a.ballast = newBallast(a.cfg.DataDir)
	a.index = inventory.NewIndex(inventory.IndexConfig{
		Dir: filepath.Join(a.cfg.DataDir, "index"), Stores: a.stores, Disks: &a.disks, Leaves: a.incidents.carries, Log: a.log,
	})
	a.openValues()
	if a.evacuations, err = openEvacuations(filepath.Join(a.cfg.DataDir, "evacuations"), a.disk.Beside); err != nil {
		a.log.Error("cannot read which disks were to be evacuated: order it again", "err", err)
	}
	e := a.evacuations
	e.log, e.disks, e.incidents, e.limits, e.fleet, e.drainConfig = a.log, &a.disks, &a.incidents, &a.limits, &a.fleet, a.drainConfig
	a.incidents.Keeper, err = preemption.OpenKeeper[work](preemption.KeeperConfig{
		Dir: a.cfg.DataDir, Log: a.log, Policy: a.limits.policy, Estimate: a.course.estimate,
		Clock: a.deps.Clock, Synced: a.counts.Synced, Ballast: a.ballast.journal, Disk: a.disk.Beside,
	})
	return err
}

// openReceiver makes the receiver, which takes in blocks of other nodes, and the reader, which serves blocks from here or
// from their holders.
func (a *Agent) openReceiver() {
	most := a.cfg.Receive
	a.receiver = receiver.New(receiver.Config{
		Node: a.cfg.Node.Name, Stores: a.stores, Vault: a.vault, Room: a.disks.room, Disks: &a.disks,
		MaxStreams: most.MaxStreams, MaxBytes: int64(most.MaxBytes), Keep: most.Keep, ScrubBytesPerSecond: int64(most.ScrubBytesPerSecond),
		Admit: a.incidents.admit, Landed: a.fleet.landed, Gone: a.gone, Ended: a.fleet.Report, Broken: a.fleet.broke,
		InUse: a.workloads.inUse, Home: a.homeOf, Over: a.course.appsOver, OverChanged: a.fleet.AppsChanged, Log: a.log,
	})
	a.reader = &reading.Reader{
		Node: a.cfg.Node.Name, Stores: a.stores, Vault: a.vault, Disks: &a.disks, Log: a.log, Broken: a.broken, Fallback: a.fallback.lastResort,
		Fetch: &reading.Fetcher{Locate: a.fleet.locate, LocateMore: a.fleet.locateMore, WhoHas: a.fleet.whoHas, Peers: a.fleet.readable, Dial: a.dialHolder},
	}
}

// cloudTimeout is how long the start may wait for the cloud to say which machine this is, and for the lookup of each
// coordinator's name.
const cloudTimeout = 2 * time.Second

func (a *Agent) openNotices(ctx context.Context) (err error) {
	a.directives = &directives{next: func(ctx context.Context) (*api.Directive, error) { return a.fleet.NextDirective(ctx) }}
	sources := []preemption.Source{a.course.manual, a.directives}
	if a.cloud, err = a.cfg.Cloud.Open(a.log, a.deps.Dial, a.counts.Polled); err != nil {
		return err
	}
	if a.cloud != nil {
		sources = append(sources, a.cloud)
		if !a.place.Load().known() {
			if err := a.askPlace(ctx, startPatience); err != nil {
				a.log.Warn("the cloud does not say which zone and machine type this is: it is asked again", "err", err)
			}
		}
	} else {
		a.log.Info("no cloud's notices are listened for: the machine's firmware names none, or the configuration says so")
	}
	if a.deps.Logind != nil {
		sources = append(sources, a.deps.Logind)
	}
	a.course.notices = preemption.NewWatcher(a.log, sources...)
	return nil
}

func (a *Agent) openHeartbeat() error {
	var err error
	if a.fleet.incarnation, err = incarnation(a.cfg.DataDir); err != nil {
		return err
	}
	address, err := a.advertised()
	if err != nil {
		return err
	}
	a.deps.Identity.Distrust(a.at.guests.revokedAt)
	a.fleet.node = a.cfg.Node.Name
	a.fleet.Client, err = heartbeat.New(heartbeat.Config{
		Node: a.cfg.Node.Name, Incarnation: a.fleet.incarnation, PeerAddress: address,
		Place:   func() (zone, pool string) { p := a.place.Load(); return p.zone, p.pool },
		Version: a.deps.Version, Coordinators: a.cfg.Coordinators, TLS: a.deps.Identity.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator}),
		Dial: a.deps.Dial, PeersFile: filepath.Join(a.cfg.DataDir, "peers.json"), RevokedFile: filepath.Join(a.cfg.DataDir, "revoked.json"),
		Status: a.status, Held: a.held, Revoked: a.at.distrust, Log: a.log,
	})
	return err
}

// advertised is the address that peers are told for this node.
func (a *Agent) advertised() (string, error) {
	if a.cfg.Listen.Advertise != "" {
		return a.cfg.Listen.Advertise, nil
	}
	bound := a.at.peer.Addr().String()
	host, port, err := net.SplitHostPort(bound)
	if err != nil {
		return bound, nil // a test's network has its own kind of address
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		return bound, nil
	}
	itself := "" // if a coordinator runs here, or /etc/hosts gives its name to this machine: peers would reach themselves there
	for _, c := range a.cfg.Coordinators {
		local := localTowards(c)
		if local == "" {
			continue
		}
		if local = net.JoinHostPort(local, port); !config.Loopback(local) {
			return local, nil
		}
		itself = local
	}
	for _, c := range elsewhere {
		if local := localTowards(c); local != "" {
			why := "no way to a coordinator is known now, as when no name can be looked up"
			if itself != "" {
				why = "the only way to a coordinator that is known now stays on this machine"
			}
			a.log.Warn("peers are told the address that leads out of this machine: set listen.advertise where that is another", "peer", local, "why", why)
			return net.JoinHostPort(local, port), nil
		}
	}
	if itself != "" {
		return itself, nil
	}
	return "", errors.New("no address of this machine leads to a coordinator: set listen.advertise")
}

// elsewhere are addresses that no machine has (RFC 5737 and 3849), so the way to them is the default route.
var elsewhere = []string{"192.0.2.1:9", "[2001:db8::1]:9"}

// localTowards is this machine's address on the way to another one, "" where none is known. It waits only cloudTimeout, for
// the start waits for it. A UDP socket sends nothing when it connects: the kernel only picks the route.
func localTowards(address string) string {
	conn, err := (&net.Dialer{Timeout: cloudTimeout}).Dial("udp", address)
	if err != nil {
		return ""
	}
	defer conn.Close()
	local, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	return local
}

// resume takes up the open incident of an earlier process, and tells the sources what they had said before.
func (a *Agent) resume() {
	p, open := a.incidents.Open()
	if !open {
		return
	}
	a.course.notices.Believe(p.Incident.Notices...)
	for _, n := range p.Incident.Notices {
		if n.Source == preemption.SourceOperator && !n.Withdrawn {
			a.fleet.Believe(n.ID)
			a.directives.last = n.ID
		}
	}
	if p.Work.Drained == nil { // else the status shows its summary
		moved, err := migration.Carried(a.refuge.accountDir(p.Incident.ID))
		if err != nil {
			a.log.Warn("cannot read what was moved before", "err", err)
		}
		a.course.drains.resume(moved)
	}
	a.log.Info("resuming", "incident", p.Incident.ID, "kind", p.Incident.Kind(), "drained", p.Work.Drained != nil, preemption.Left(p.Incident.Deadline()))
}

// held yields the blocks that landed here from other nodes. Each is valid until the next.
func (a *Agent) held() iter.Seq2[*api.HeldBlock, error] {
	return func(yield func(*api.HeldBlock, error) bool) {
		said := new(api.HeldBlock)
		for h, err := range a.vault.Held() {
			if diskio.IsSilent(err) { // nobody knows what follows: a report that ends here would say that it is gone
				yield(nil, err)
				return
			}
			if err != nil {
				a.log.Error("a record of what landed here is unreadable", "err", err)
				continue // the other records are worth reporting
			}
			said.Id, said.Bytes, said.From = string(h.ID), h.Bytes, h.From
			if !yield(said, nil) {
				return
			}
		}
	}
}

// close releases what New opened. The goroutines that used it have ended.
func (a *Agent) close() {
	a.at.close()
	if a.reader != nil {
		a.reader.Fetch.Close()
	}
	if a.vault != nil {
		if err := a.vault.Close(); err != nil {
			a.log.Warn("close the vault", "err", err)
		}
	}
	if a.told != nil {
		if err := a.told.Close(); err != nil {
			a.log.Warn("close what programs said of blocks", "err", err)
		}
	}
	for _, s := range a.stores {
		if err := s.Close(); err != nil {
			a.log.Warn("close a store", "err", err)
		}
	}
}
