package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ErrNoUnit says that a process or a name belongs to no unit.
var ErrNoUnit = errors.New("no such unit")

// Unit is what systemd knows about a service or a scope.
type Unit struct {
	Name        string
	ActiveState string        // active, deactivating, failed, ...
	StatusText  string        // the last line that it set by Status
	MainPID     int           // 0: it has none
	After       []string      // it starts after these, and stops before them
	StopTimeout time.Duration // between SIGTERM and SIGKILL: TimeoutStopSec; may be Forever
	KillMode    string        // control-group, mixed, process, none
}

// Unit looks a service or a scope up.
func (m *Manager) Unit(ctx context.Context, name string) (Unit, error) {
	kind, ok := map[string]string{".service": "Service", ".scope": "Scope"}[suffix(name)]
	if !ok {
		return Unit{}, fmt.Errorf("look up %s: neither a service nor a scope", name)
	}
	general, err := m.conn.GetUnitPropertiesContext(ctx, name)
	if err != nil {
		return Unit{}, fmt.Errorf("look up %s: %w", name, err)
	}
	if general["LoadState"] == "not-found" {
		return Unit{}, fmt.Errorf("look up %s: %w", name, ErrNoUnit)
	}
	special, err := m.conn.GetUnitTypePropertiesContext(ctx, name, kind)
	if err != nil {
		return Unit{}, fmt.Errorf("look up %s: %w", name, err)
	}
	u := Unit{Name: name}
	u.ActiveState, _ = general["ActiveState"].(string)
	u.After, _ = general["After"].([]string)
	u.StatusText, _ = special["StatusText"].(string)
	u.KillMode, _ = special["KillMode"].(string)
	pid, _ := special["MainPID"].(uint32)
	u.MainPID = int(pid)
	usec, _ := special["TimeoutStopUSec"].(uint64)
	u.StopTimeout = fromUSec(usec)
	return u, nil
}

// StopTimeout is how long the unit of this process has between SIGTERM and SIGKILL. ErrNoUnit: this process is in no unit
// that systemd would stop as a service.
func StopTimeout(ctx context.Context) (time.Duration, error) {
	name, err := ownUnit()
	if err != nil {
		return 0, err
	}
	if suffix(name) != ".service" {
		return 0, fmt.Errorf("%s is no service: %w", name, ErrNoUnit)
	}
	m, err := OpenManager(ctx)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	u, err := m.Unit(ctx, name)
	return u.StopTimeout, err
}

// ownUnit is the name of the unit that this process runs in.
func ownUnit() (string, error) { return unitOf(os.Getpid()) }

// unitOf is the name of the unit that a process runs in.
func unitOf(pid int) (string, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/cgroup"
	groups, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	name, ok := unitIn(string(groups))
	if !ok {
		return "", fmt.Errorf("look for a unit in %s: %w", path, ErrNoUnit)
	}
	return name, nil
}

// unitIn finds the system's unit in the text of /proc/PID/cgroup: in the hierarchy that systemd uses, the first group that
// is not a slice (cg_path_get_unit in systemd's cgroup-util.c).
func unitIn(groups string) (string, bool) {
	for line := range strings.Lines(groups) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":") // 0::/system.slice/a.service, whose path may hold more colons
		controllers, path, _ := strings.Cut(rest, ":")
		if controllers != "" && controllers != "name=systemd" {
			continue
		}
		for group := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
			switch suffix(group) {
			case ".slice":
				continue
			case ".service", ".scope":
				return strings.TrimPrefix(group, "_"), true // the kernel's own names are escaped so
			}
			break
		}
	}
	return "", false
}

func suffix(name string) string {
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		return name[i:]
	}
	return ""
}
