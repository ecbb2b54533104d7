package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/migration/diskio"
)

// CheckLinks reports each directory of a store that a link puts into one of the agent's own directories, or around it: Validate looks at
// names alone. All that is in a store is carried, and served to those who may read blocks. From data_dir that would be the key of the
// certificate, and from a vault its segments, in larger ones each time. It says nothing of a disk that does not answer.
func (c *Config) CheckLinks(ctx context.Context, report config.Report) {
	ctx, cancel := context.WithTimeout(ctx, diskio.OpenPatience)
	defer cancel()
	type own struct{ key, path, real string }
	var ours []own
	add := func(key, path string) {
		if real, err := unlinked(ctx, path); err == nil && path != "" {
			ours = append(ours, own{key, path, real})
		}
	}
	add("data_dir", c.DataDir)
	for i, path := range c.Receive.Paths {
		add(fmt.Sprintf("receive.paths[%d]", i), path)
	}
	add("fallback.dir", c.Fallback.Dir)
	for i, s := range c.Stores {
		for j, path := range s.Paths {
			real, err := unlinked(ctx, path)
			for _, o := range ours {
				if err == nil && (inside(real, o.real) || inside(o.real, real)) {
					bound := fmt.Sprintf("must be apart from %s %s, and links lead to %s and %s: no file may be in both", o.key, o.path, real, o.real)
					report(fmt.Sprintf("stores[%d].paths[%d]", i, j), path, bound, "choose another directory")
				}
			}
		}
	}
}

// unlinked returns where the links in a path lead. What is not there yet has none.
func unlinked(ctx context.Context, path string) (string, error) {
	return diskio.UnlessHung(ctx, func() (string, error) {
		for rest := ""; ; path, rest = filepath.Dir(path), filepath.Join(filepath.Base(path), rest) {
			real, err := filepath.EvalSymlinks(path)
			if !errors.Is(err, fs.ErrNotExist) || path == "/" {
				return filepath.Join(real, rest), err
			}
		}
	})
}
