package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lifeboat/lifeboat/disks"
)

var (
	diskHealthDesc   = diskDesc("health", "1 for the state that the disk is in, 0 for the others.", "state")
	diskTotalDesc    = diskDesc("total_bytes", "Size of the file system; absent until known.")
	diskFreeDesc     = diskDesc("free_bytes", "What the file system says is free, within quotas; absent until known.")
	diskUsableDesc   = diskDesc("usable_bytes", "What may still be promised to leaving peers; 0 on a disk that takes no blocks.")
	diskReservedDesc = diskDesc("reserved_bytes", "Room set aside on the device for blocks under way.")
	diskInodesDesc   = diskDesc("inodes_free", "Free inodes; absent where none are counted.")
	diskFlushDesc    = diskDesc("flush_bytes_per_second", "How fast the device makes blocks durable; absent when unknown.")
	diskFetchDesc    = diskDesc("fetch_bytes_per_second", "How fast the device gives blocks back; absent when unknown.")
	diskErrorsDesc   = diskDesc("errors", "Errors within ten minutes, as far as they matter.")
	stuckDesc        = prometheus.NewDesc("lifeboat_disk_probes_stuck", "Probes that do not come back: threads that a disk holds.", nil, nil)
)

func diskDesc(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc("lifeboat_disk_"+name, help, append([]string{"path"}, more...), nil)
}

// diskFigures are the disks in numbers. A node has few, and their paths are those of its configuration.
type diskFigures struct{ agent *Agent }

func (f diskFigures) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(f, ch) }

func (f diskFigures) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	for _, d := range f.agent.diskStates() {
		for h := disks.Unknown; h <= disks.Missing; h++ {
			is := int64(0)
			if h.String() == d.Health {
				is = 1
			}
			gauge(diskHealthDesc, is, d.Path, h.String())
		}
		if d.Slots != nil { // its size is known
			gauge(diskTotalDesc, d.TotalBytes, d.Path)
			gauge(diskFreeDesc, d.FreeBytes, d.Path)
		}
		gauge(diskUsableDesc, d.UsableBytes, d.Path)
		gauge(diskReservedDesc, d.ReservedBytes, d.Path)
		gauge(diskErrorsDesc, d.Errors, d.Path)
		for desc, v := range map[*prometheus.Desc]*int64{diskInodesDesc: d.InodesFree, diskFlushDesc: d.FlushBytesPerSecond, diskFetchDesc: d.FetchBytesPerSecond} {
			if v != nil {
				gauge(desc, *v, d.Path)
			}
		}
	}
	gauge(stuckDesc, int64(f.agent.disks.Stuck()))
}
