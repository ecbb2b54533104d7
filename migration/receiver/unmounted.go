package receiver

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// A store's disk may not be mounted when the agent starts. Then its directory is an empty one of the system's disk, but the
// blocks that landed on the store's disk are not gone. A block that landed now would lie beneath the mount, and its staging
// directory would make the others look like blocks that engines removed (ghosts.go).

// findAway finds the store's directories that seem to be without their disk: they lie on the system's disk, blocks have
// landed there, and there is no staging directory. The agent opens directories when it starts, so such a directory stays
// away until a restart.
func findAway(s *inventory.Store, c *catalog.Catalog) {
	for i, r := range s.Roots {
		if s.AwayWhy[i] != nil {
			continue // it could not be opened
		}
		if _, err := r.Lstat(inventory.StagingDir); !errors.Is(err, fs.ErrNotExist) || s.Device(i) != s.System {
			continue
		}
		if c.LandedIn(s.Name, i) {
			s.AwayWhy[i] = diskio.Away(fmt.Errorf("%s is not mounted: blocks that landed there are not in it; mount it and restart the agent, or, if they are gone for good, make the directory %s and restart",
				s.Paths[i], filepath.Join(s.Paths[i], inventory.StagingDir)))
		}
	}
}

// mistrust marks all of a store's directories as away: nobody knows which of them its landed blocks lie in.
func mistrust(s *inventory.Store, why error) {
	for i := range s.AwayWhy {
		if s.AwayWhy[i] == nil {
			s.AwayWhy[i] = diskio.Away(fmt.Errorf("%w; restart the agent when that can be written", why))
		}
	}
}
