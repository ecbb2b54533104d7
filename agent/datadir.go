package agent

import (
	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/durable"
)

// newDisk is what writes to data_dir.
func (a *Agent) newDisk() *durable.Beside {
	return &durable.Beside{Known: a.knownToHang, Late: func(what string, err error) {
		if err != nil {
			a.log.Error("what waited for the disk of data_dir is not written", "what", what, "err", err)
		} else {
			a.log.Info("what waited for the disk of data_dir is written", "what", what)
		}
	}}
}

// knownToHang says whether whoever watches the disks has seen that data_dir's does.
func (a *Agent) knownToHang() bool {
	d, ok := on(a.cfg.DataDir, a.landing.healths())
	return ok && d.Health == disks.IOHang
}
