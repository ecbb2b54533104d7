package migration

import "github.com/lifeboat/lifeboat/migration/inventory"

// claimNaming and claimRemoval take a turn with the files of a block in place, which moved ends: several may name them at a
// time, or one removes them.
func (v *TheVault) claimNaming(id inventory.BlockID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.moving[id] < 0 {
		return false
	}
	v.moving[id]++
	return true
}

func (v *TheVault) claimRemoval(id inventory.BlockID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.moving[id] != 0 {
		return false
	}
	v.moving[id] = -1
	return true
}

// removing reports whether the files of a block are being removed.
func (v *TheVault) removing(id inventory.BlockID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.moving[id] < 0
}

func (v *TheVault) moved(id inventory.BlockID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.moving[id] > 1 {
		v.moving[id]--
		return
	}
	delete(v.moving, id)
}
