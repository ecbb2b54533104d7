package hosts_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// hierarchies are the directories in which systemd keeps its units' control groups: one on today's hosts, two in the older
// layouts.
func hierarchies() (roots []string) {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil {
			roots = append(roots, root)
		}
	}
	return roots
}

// newCgroup makes a control group for one host, whose systemd then believes that it is alone. The host's first process
// must write itself to the files that newCgroup returns.
func newCgroup(host string) (procs []string, err error) {
	for _, root := range hierarchies() {
		dir := filepath.Join(root, filepath.Base(inside), host)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		procs = append(procs, filepath.Join(dir, "cgroup.procs"))
	}
	return procs, nil
}

// removeCgroups removes the groups that newCgroup and the hosts made. All their processes have ended.
func removeCgroups(name string) (err error) {
	for _, root := range hierarchies() {
		var dirs []string
		walk := filepath.WalkDir(filepath.Join(root, name), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if walk != nil && !errors.Is(walk, fs.ErrNotExist) {
			err = errors.Join(err, walk)
		}
		slices.Reverse(dirs) // inner ones first
		for _, dir := range dirs {
			err = errors.Join(err, os.Remove(dir))
		}
	}
	return err
}
