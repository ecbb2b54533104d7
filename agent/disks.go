package agent

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/disks"
)

// Monitor watches the disks behind the agent's directories. None of its methods but Run waits for a disk.
type Monitor interface {
	Run(ctx context.Context) error
	Snapshot() []disks.Disk
	Changed() <-chan struct{}
	Stuck() int
	Take(need int64, among []string) (path string, release func(written int64), ok bool)
	Observe(path string, op disks.Op, bytes int64, took time.Duration)
	Fault(path string, err error)
	SetReserve(bytes int64)
}

func (a *Agent) newMonitor() Monitor {
	c := a.cfg.Disks
	cfg := disks.Config{
		Paths: a.diskPaths(), Every: c.Every, Limit: cmp.Or(c.Limit, c.Every), SlowAt: c.SlowAt, SampleBytes: int64(c.SampleBytes),
		ReserveBytes: int64(a.cfg.Receive.ReserveBytes), Command: a.deps.ProbeCommand, Log: a.log,
	}
	if cfg.SampleBytes == 0 {
		cfg.SampleBytes = -1
	}
	if a.deps.Monitor != nil {
		return a.deps.Monitor(cfg)
	}
	return disks.New(cfg)
}

// diskPaths are the directories whose disks matter to this node.
func (a *Agent) diskPaths() []string {
	paths := append([]string{a.cfg.DataDir}, a.cfg.Receive.Paths...)
	for _, s := range a.cfg.Stores {
		paths = append(paths, s.Paths...)
	}
	return paths
}

// Run runs the monitor until ctx ends. If the monitor fails nothing is known of any disk, so the node takes no blocks; its
// own blocks can still leave.
func (l *landing) Run(ctx context.Context) error {
	if err := l.monitor.Run(ctx); err != nil {
		l.log.Error("the disks are not watched: this node takes no blocks", "err", err)
	}
	return nil
}

// tellOfDisks tells the coordinator at once when the health of a disk changes.
func (a *Agent) tellOfDisks(ctx context.Context) error {
	for {
		changed := a.disks.Changed()
		a.fleet.Nudge()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// longestWhy bounds a reason on its way to the coordinator, in bytes; longestMount and longestType a mount's names, which may
// be of any bytes: a coordinator refuses the heartbeat that names one longer, or one that does not print.
const (
	longestWhy   = 500
	longestMount = 1000
	longestType  = 100
)

// wire returns what is known of each disk, for the heartbeat, the status and the metrics.
func (l *landing) wire() (all []*api.Disk) {
	now := time.Now()
	for _, d := range l.monitor.Snapshot() {
		w := &api.Disk{
			Path: d.Path, Health: d.Health.String(), Why: short(d.Why, longestWhy), Mount: short(d.Mount, longestMount), Filesystem: short(d.FS, longestType), Kind: d.Kind,
			TotalBytes: d.TotalBytes, FreeBytes: d.FreeBytes, UsableBytes: d.UsableBytes, ReservedBytes: d.ReservedBytes, Errors: int64(d.Errors),
			Unwell: unwell(d.Health), Closed: l.closed(d.Path),
			FlushBytesPerSecond: known(d.Flush), FetchBytesPerSecond: known(d.Fetch),
		}
		if w.Device = cmp.Or(d.Name, d.Device); w.Device == "0:0" {
			w.Device = ""
		}
		if why := l.notMounted(d.Path); why != nil {
			w.Health, w.Why, w.Unwell, w.UsableBytes, d.FreeSlots = disks.Missing.String(), short(why.Error(), longestWhy), true, 0, 0
		}
		if w.Closed {
			w.UsableBytes, d.FreeSlots = 0, 0
		}
		if !d.Since.IsZero() {
			w.Since = durationpb.New(now.Sub(d.Since))
		}
		if d.TotalBytes > 0 {
			w.Slots, w.FreeSlots = &d.Slots, &d.FreeSlots
		}
		if d.Inodes > 0 {
			w.Inodes, w.InodesFree = &d.Inodes, &d.InodesFree
		}
		all = append(all, w)
	}
	return all
}

// notMounted says why a store's directory counts as one whose disk is not mounted, or is no longer the directory that the
// store has open. The monitor knows only what was mounted since it began to look.
func (l *landing) notMounted(path string) error {
	for _, s := range l.stores {
		if why := cmp.Or(s.Away(path), s.Displaced(path)); why != nil {
			return why
		}
	}
	return nil
}

// unwell reports whether a disk counts as bad when the coordinator asks if a node has any good one. A full disk is well, and
// one that has not answered yet is not bad before its time is up.
func unwell(h disks.Health) bool {
	return !h.Writable() && h != disks.Unknown && h != disks.HighUsage
}

func known(r disks.Rate) *int64 {
	if !r.Known() {
		return nil
	}
	return &r.BytesPerSecond
}

// below returns the watched directories at or below a path.
func (a *Agent) below(path string) (all []string) {
	path = filepath.Clean(path)
	for _, p := range a.diskPaths() {
		if inside(p, path) {
			all = append(all, p)
		}
	}
	return all
}
