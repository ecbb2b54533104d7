package agent

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/figures"
	"github.com/lifeboat/lifeboat/preemption"
)

// metrics serves the agent's figures.
func (a *Agent) metrics() http.Handler {
	return promhttp.HandlerFor(a.counts.registry, promhttp.HandlerOpts{})
}

// figures reads the metrics, when they are scraped, off the same status that the heartbeat carries.
func (a *Agent) figures(to figures.To) {
	s := a.status()
	preemption.Figures(to, s.Notice, a.course.notices.Health())
	if d := s.Drain; d != nil {
		blocks := func(n int64, outcome string) {
			to.Gauge("lifeboat_drain_blocks", "Blocks of the last drain, by what became of them.", float64(n), "outcome", outcome)
		}
		bytes := func(n int64, outcome string) {
			to.Gauge("lifeboat_drain_bytes", "Bytes of the last drain, by what became of them.", float64(n), "outcome", outcome)
		}
		blocks(d.BlocksTotal, "found")
		blocks(d.BlocksMoved, "moved")
		blocks(d.BlocksLost, "lost")
		blocks(d.BlocksSkipped, "skipped")
		bytes(d.BytesTotal, "found")
		bytes(d.BytesMoved, "moved")
		to.Gauge("lifeboat_drain_bytes_per_second", "Rate of the running drain over the last seconds.", float64(d.BytesPerSecond))
		if p, _, ok := a.course.drains.progress(); ok {
			bytes(p.Lost.Bytes, "lost")
		} else if p, _ := a.incidents.Open(); p.Work.Drained != nil { // before a restart
			bytes(p.Work.Drained.Lost.Bytes, "lost")
		}
	}
	if is := a.fallback.is.Load(); is != nil {
		to.Gauge("lifeboat_fallback_well", "1 when the fallback would take blocks as of the last check, 0 when it would not; absent without one.", figures.Bool(is.trouble == ""))
	}
	to.Certificate(a.deps.Identity)
	to.Gauge("lifeboat_data_dir_waits_seconds", "How long the disk of data_dir has been at what is to be written there; 0 while it answers.", a.disk.unwritten().Seconds())
	to.Gauge("lifeboat_held_blocks", "Blocks that landed here from other nodes.", float64(s.HeldBlocks))
	to.Gauge("lifeboat_held_bytes", "Bytes that landed here from other nodes.", float64(s.HeldBytes))
	to.Gauge("lifeboat_held_taken_bytes", "What they take of the disks, their names and records included, as receive.max_bytes counts it.", float64(s.HeldTakenBytes))
	to.Gauge("lifeboat_room_bytes", "What this node would take from a leaving peer now.", float64(s.RoomBytes))
	to.Gauge("lifeboat_vault_room_bytes", "Of that, what it would take of stores whose blocks do not land in their place here.", float64(s.GetVaultRoomBytes()))
	index := a.index.State()
	to.Gauge("lifeboat_index_blocks", "Blocks of stores of plain files that a drain would not have to look for, as the node knows what is there.", float64(index.Holds.Blocks))
	to.Gauge("lifeboat_index_bytes", "Bytes of those blocks.", float64(index.Holds.Bytes))
	if !index.AsOf.IsZero() {
		to.Gauge("lifeboat_index_age_seconds", "Time since the index of the stores was last found to be true; absent without one.", time.Since(index.AsOf).Seconds())
	}
	waits := a.receiver.Unpacking()
	to.Gauge("lifeboat_unpacking_blocks", "Blocks from other nodes that rest in segments and are to become files of their store.", float64(waits.Waiting.Blocks))
	to.Gauge("lifeboat_unpacking_bytes", "Bytes of the blocks that are to become files.", float64(waits.Waiting.Bytes))
	to.Gauge("lifeboat_unpacking_occupied_blocks", "Blocks that cannot become files because another file has the name.", float64(waits.Occupied.Blocks))
	scrubbed, broken := a.receiver.Scrubbed()
	to.Counter("lifeboat_scrubbed_bytes_total", "Bytes from other nodes that were read back off the disks after they had landed.", float64(scrubbed))
	to.Counter("lifeboat_broken_blocks_total", "Blocks from other nodes that were found not to be whole any more, and removed.", float64(broken))
	if _, at, _ := a.fleet.Health(); !at.IsZero() {
		to.Gauge("lifeboat_last_heartbeat_age_seconds", "Time since a coordinator last answered; absent before the first answer.", time.Since(at).Seconds())
	}
	a.diskFigures(to)
}

// diskFigures are the metrics of the disks. Their labels are few: a node has few disks, and the paths are those of its
// configuration.
func (a *Agent) diskFigures(to figures.To) {
	for _, d := range a.disks.wire() {
		gauge := func(name, help string, v int64) { to.Gauge(name, help, float64(v), "path", d.Path) }
		for h := disks.Unknown; h <= disks.Missing; h++ {
			to.Gauge("lifeboat_disk_health", "1 for the state that the disk is in, 0 for the others.", figures.Bool(h.String() == d.Health), "path", d.Path, "state", h.String())
		}
		if d.Slots != nil { // its size is known
			gauge("lifeboat_disk_total_bytes", "Size of the file system; absent until known.", d.TotalBytes)
			gauge("lifeboat_disk_free_bytes", "What the file system says is free, within quotas; absent until known.", d.FreeBytes)
		}
		gauge("lifeboat_disk_usable_bytes", "What may still be promised to leaving peers; 0 on a disk that takes no blocks.", d.UsableBytes)
		gauge("lifeboat_disk_reserved_bytes", "Room set aside on the device for blocks under way.", d.ReservedBytes)
		gauge("lifeboat_disk_errors", "Errors within ten minutes, as far as they matter.", d.Errors)
		if d.InodesFree != nil {
			gauge("lifeboat_disk_inodes_free", "Free inodes; absent where none are counted.", *d.InodesFree)
		}
		if d.FlushBytesPerSecond != nil {
			gauge("lifeboat_disk_flush_bytes_per_second", "How fast the device makes blocks durable; absent when unknown.", *d.FlushBytesPerSecond)
		}
		if d.FetchBytesPerSecond != nil {
			gauge("lifeboat_disk_fetch_bytes_per_second", "How fast the device gives blocks back; absent when unknown.", *d.FetchBytesPerSecond)
		}
	}
	to.Gauge("lifeboat_disk_probes_stuck", "Probes that do not come back: threads that a disk holds.", float64(a.disks.monitor.Stuck()))
}
