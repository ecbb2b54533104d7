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

// A store's disk may not be mounted when the agent starts. Then an empty directory of the system's disk is where blocks have
// landed in place: they are not gone, and a block that landed there now would lie beneath the mount, together with a staging
// directory that has the others look like what engines removed (ghosts.go).

// findAway finds the store's directories that seem to be without their disk: they are on the system's, blocks have landed
// there, and no staging directory tells of that. The agent opens directories as it starts: it stays so until a restart.
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

// mistrust has a store do without what landed in its directories: nobody knows in which.
func mistrust(s *inventory.Store, why error) {
	for i := range s.AwayWhy {
		if s.AwayWhy[i] == nil {
			s.AwayWhy[i] = diskio.Away(fmt.Errorf("%w; restart the agent when that can be written", why))
		}
	}
}
