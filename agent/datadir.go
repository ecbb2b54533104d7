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

// dataDisk is the disk of data_dir, which may hang. It writes small files there, and none of its callers waits for it longer
// than durable.Patience.
type dataDisk struct {
	*durable.Beside
	dir   string
	disks *landing
}

func (a *Agent) newDisk() *dataDisk {
	d := &dataDisk{dir: a.cfg.DataDir, disks: &a.disks}
	d.Beside = &durable.Beside{Known: d.knownToHang, Late: func(what string, err error) {
		switch {
		case what == alive:
		case err != nil:
			a.log.Error("a write that waited for the disk of data_dir failed", "what", what, "err", err)
		default:
			a.log.Info("a write that waited for the disk of data_dir is done", "what", what)
		}
	}}
	return d
}

// knownToHang reports whether the monitor has seen the disk of data_dir hang.
func (d *dataDisk) knownToHang() bool {
	is, ok := on(d.dir, d.disks.healths())
	return ok && is.Health == disks.IOHang
}

// hangs reports whether the disk of data_dir is known to hang, or its present write has taken that long.
func (d *dataDisk) hangs(patience time.Duration) bool {
	return d.Takes() >= patience || d.knownToHang()
}

// unwritten is how long the oldest write to data_dir has been under way, once that is longer than durable.Patience; zero:
// the disk does not hang.
func (d *dataDisk) unwritten() time.Duration {
	if took := d.Takes(); took >= durable.Patience {
		return took
	}
	return 0
}

// dataDirTrouble is what status and doctor say while the disk of data_dir hangs, or while an account is still in the refuge.
func (a *Agent) dataDirTrouble() string {
	switch took := a.disk.unwritten(); {
	case took > 0:
		return fmt.Sprintf("its disk has not answered for %s: what belongs there waits in memory, and a restart would forget it", took.Round(time.Second))
	case a.refuge.any():
		return "an account of a drain is in memory, and ends with this machine"
	default:
		return ""
	}
}

// alive is the name of a write that only shows whether the disk of data_dir takes any.
const alive = "alive"

// touch writes to data_dir and removes what it wrote, so that it hangs where the writes of an account would.
func touch(dataDir string) error {
	path := filepath.Join(dataDir, ".alive")
	return errors.Join(os.WriteFile(path, []byte("\n"), 0o600), os.Remove(path))
}
