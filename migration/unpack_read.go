package migration

import (
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// packed returns a group of the store's blocks that are to be unpacked, behind the id after, and the last id that was looked at.
func (u *unpacker) packed(after []byte) (group []catalog.Record, last []byte, err error) {
	wanted := func(r catalog.Record) bool { return wants(u.store, r) } // what cannot be read is named when it is asked for
	return u.r.cfg.Vault.catalog.Some(u.store.Name, after, wanted, groupBlocks, groupBytes)
}

// wants reports whether a block rests in a segment and belongs in the store's directories.
func wants(s *inventory.Store, r catalog.Record) bool {
	return r.Segment != 0 && s.Land == inventory.LandPlace && s.Layout == r.Layout && inventory.BlockID(r.ID).Store() == s.Name
}
