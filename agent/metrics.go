package agent

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics serves the agent's figures. They are read off the same status that the heartbeat carries, when asked.
func (a *Agent) metrics() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), figures{a}, diskFigures{a}, a.counts,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lifeboat_build_info", Help: "1, with the version of this daemon.", ConstLabels: prometheus.Labels{"version": a.deps.Version}}, func() float64 { return 1 }))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

type figures struct{ agent *Agent }

var (
	noticeDesc    = prometheus.NewDesc("lifeboat_notice", "1 while the node is under notice, by kind and source.", []string{"kind", "source", "stance"}, nil)
	deadlineDesc  = prometheus.NewDesc("lifeboat_deadline_remaining_seconds", "Time until the machine goes; absent where no deadline is known.", nil, nil)
	drainDesc     = prometheus.NewDesc("lifeboat_drain_blocks", "Blocks of the last drain, by what became of them.", []string{"outcome"}, nil)
	drainByteDesc = prometheus.NewDesc("lifeboat_drain_bytes", "Bytes of the last drain, by what became of them.", []string{"outcome"}, nil)
	rateDesc      = prometheus.NewDesc("lifeboat_drain_bytes_per_second", "Rate of the running drain over the last seconds.", nil, nil)
	heldDesc      = prometheus.NewDesc("lifeboat_held_blocks", "Blocks that landed here from other nodes.", nil, nil)
	heldByteDesc  = prometheus.NewDesc("lifeboat_held_bytes", "Bytes that landed here from other nodes.", nil, nil)
	packedDesc    = prometheus.NewDesc("lifeboat_unpacking_blocks", "Blocks from other nodes that rest in segments and are to become files of their store.", nil, nil)
	packedBytes   = prometheus.NewDesc("lifeboat_unpacking_bytes", "Bytes of the blocks that are to become files.", nil, nil)
	occupiedDesc  = prometheus.NewDesc("lifeboat_unpacking_occupied_blocks", "Blocks that cannot become files because another file has the name.", nil, nil)
	scrubbedDesc  = prometheus.NewDesc("lifeboat_scrubbed_bytes_total", "Bytes from other nodes that were read back off the disks after they had landed.", nil, nil)
	brokenDesc    = prometheus.NewDesc("lifeboat_broken_blocks_total", "Blocks from other nodes that were found not to be whole any more, and removed.", nil, nil)
	indexDesc     = prometheus.NewDesc("lifeboat_index_blocks", "Blocks of stores of plain files that a drain would not have to look for, as the node knows what is there.", nil, nil)
	indexByteDesc = prometheus.NewDesc("lifeboat_index_bytes", "Bytes of those blocks.", nil, nil)
	indexAgeDesc  = prometheus.NewDesc("lifeboat_index_age_seconds", "Time since the index of the stores was last found to be true; absent without one.", nil, nil)
	roomDesc      = prometheus.NewDesc("lifeboat_room_bytes", "What this node would take from a leaving peer now.", nil, nil)
	vaultRoomDesc = prometheus.NewDesc("lifeboat_vault_room_bytes", "Of that, what it would take of stores whose blocks do not land in their place here.", nil, nil)
	fallbackDesc  = prometheus.NewDesc("lifeboat_fallback_well", "1 when the fallback would take blocks as of the last check, 0 when it would not; absent without one.", nil, nil)
	unwrittenDesc = prometheus.NewDesc("lifeboat_data_dir_waits_seconds", "How long the disk of data_dir has been at what is to be written there; 0 while it answers.", nil, nil)
	beatDesc      = prometheus.NewDesc("lifeboat_last_heartbeat_age_seconds", "Time since a coordinator last answered; absent before the first answer.", nil, nil)
	certFromDesc  = prometheus.NewDesc("lifeboat_certificate_begins_seconds", "When this daemon's certificate began, in seconds since 1970.", nil, nil)
	certDesc      = prometheus.NewDesc("lifeboat_certificate_expires_seconds", "When this daemon's certificate ends, in seconds since 1970.", nil, nil)
	pollDesc      = prometheus.NewDesc("lifeboat_last_good_poll_age_seconds", "Time since a source of notices last got a definite answer.", []string{"source", "path"}, nil)
)

func (f figures) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(f, ch) }

func (f figures) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := f.agent.status()
	if n := s.Notice; n != nil {
		gauge(noticeDesc, 1, n.Kind, n.Source, n.Stance)
		if n.Remaining != nil {
			gauge(deadlineDesc, n.Remaining.AsDuration().Seconds())
		}
	}
	if d := s.Drain; d != nil {
		gauge(drainDesc, float64(d.BlocksTotal), "found")
		gauge(drainDesc, float64(d.BlocksMoved), "moved")
		gauge(drainDesc, float64(d.BlocksLost), "lost")
		gauge(drainDesc, float64(d.BlocksSkipped), "skipped")
		gauge(drainByteDesc, float64(d.BytesTotal), "found")
		gauge(drainByteDesc, float64(d.BytesMoved), "moved")
		gauge(rateDesc, float64(d.BytesPerSecond))
		if p, _, ok := f.agent.drains.progress(); ok {
			gauge(drainByteDesc, float64(p.Lost.Bytes), "lost")
		} else if p, _ := f.agent.incidents.Open(); p.Work.Drained != nil { // before a restart
			gauge(drainByteDesc, float64(p.Work.Drained.Lost.Bytes), "lost")
		}
	}
	if is := f.agent.fallbackIs.Load(); is != nil {
		gauge(fallbackDesc, map[bool]float64{true: 1}[is.trouble == ""])
	}
	gauge(certFromDesc, float64(f.agent.deps.Identity.Begins().Unix()))
	gauge(certDesc, float64(f.agent.deps.Identity.Expires().Unix()))
	gauge(unwrittenDesc, f.agent.unwritten().Seconds())
	gauge(heldDesc, float64(s.HeldBlocks))
	gauge(heldByteDesc, float64(s.HeldBytes))
	gauge(roomDesc, float64(s.RoomBytes))
	gauge(vaultRoomDesc, float64(s.GetVaultRoomBytes()))
	index := f.agent.index.State()
	gauge(indexDesc, float64(index.Holds.Blocks))
	gauge(indexByteDesc, float64(index.Holds.Bytes))
	if !index.AsOf.IsZero() {
		gauge(indexAgeDesc, time.Since(index.AsOf).Seconds())
	}
	waits := f.agent.receiver.Unpacking()
	gauge(packedDesc, float64(waits.Waiting.Blocks))
	gauge(packedBytes, float64(waits.Waiting.Bytes))
	gauge(occupiedDesc, float64(waits.Occupied.Blocks))
	scrubbed, broken := f.agent.receiver.Scrubbed()
	ch <- prometheus.MustNewConstMetric(scrubbedDesc, prometheus.CounterValue, float64(scrubbed))
	ch <- prometheus.MustNewConstMetric(brokenDesc, prometheus.CounterValue, float64(broken))
	if _, at, _ := f.agent.beat.Health(); !at.IsZero() {
		gauge(beatDesc, time.Since(at).Seconds())
	}
	for _, h := range f.agent.notices.Health() {
		if !h.LastGood.IsZero() {
			gauge(pollDesc, time.Since(h.LastGood).Seconds(), h.Source, h.Path)
		}
	}
}
