package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/durable"
)

// newDisk is what writes to data_dir.
func (a *Agent) newDisk() *durable.Beside {
	return &durable.Beside{Known: a.knownToHang, Late: func(what string, err error) {
		switch {
		case what == alive:
		case err != nil:
			a.log.Error("a write that waited for the disk of data_dir failed", "what", what, "err", err)
		default:
			a.log.Info("a write that waited for the disk of data_dir is done", "what", what)
		}
	}}
}

// knownToHang says whether whoever watches the disks has seen that data_dir's does.
func (a *Agent) knownToHang() bool {
	d, ok := on(a.cfg.DataDir, a.landing.healths())
	return ok && d.Health == disks.IOHang
}

// hangs says whether it does, or has been at what it does now for so long.
func (a *Agent) hangs(patience time.Duration) bool {
	return a.disk.Takes() >= patience || a.knownToHang()
}

// unwritten is for how long what is to be written to data_dir has waited for it; zero: it does not hang.
func (a *Agent) unwritten() time.Duration {
	if took := a.disk.Takes(); took >= durable.Patience {
		return took
	}
	return 0
}

// dataDirTrouble is what people are told of that.
func (a *Agent) dataDirTrouble() string {
	switch took := a.unwritten(); {
	case took > 0:
		return fmt.Sprintf("its disk has not answered for %s: what belongs there waits in memory, and a restart would forget it", took.Round(time.Second))
	case a.refuge.any():
		return "an account of a drain is in memory, and ends with this machine"
	default:
		return ""
	}
}

// alive is the name of what only shows whether the disk of data_dir takes anything.
const alive = "alive"

// touch writes to data_dir, as those do who add to an account.
func touch(dataDir string) error {
	path := filepath.Join(dataDir, ".alive")
	return errors.Join(os.WriteFile(path, []byte("\n"), 0o600), os.Remove(path))
}
