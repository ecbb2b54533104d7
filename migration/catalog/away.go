package catalog

import (
	"fmt"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// AwayFrom returns why a block that lies in place is away: its store's disk is, or the directory was taken out of the store's paths.
func (r *Record) AwayFrom(stores []*inventory.Store) error {
	s := inventory.StoreOf(stores, inventory.BlockID(r.ID))
	if s == nil {
		return nil
	}
	for _, p := range r.Placed {
		switch {
		case p.Root >= len(s.AwayWhy):
			return diskio.Away(fmt.Errorf("it landed in a directory that was taken out of the paths of store %s", s.Name))
		case s.AwayWhy[p.Root] != nil:
			return s.AwayWhy[p.Root]
		}
	}
	return nil
}
