package vault

import "github.com/lifeboat/lifeboat/migration/inventory"

// ClaimNaming and ClaimRemoval take a turn with the files of a block in place, which Unclaim ends: several may name them at a
// time, or one removes them.
func (v *Vault) ClaimNaming(id inventory.BlockID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.moving[id] < 0 {
		return false
	}
	v.moving[id]++
	return true
}

// ClaimRemoval is the turn of one who removes them.
func (v *Vault) ClaimRemoval(id inventory.BlockID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.moving[id] != 0 {
		return false
	}
	v.moving[id] = -1
	return true
}

// Removing reports whether the files of a block are being removed.
func (v *Vault) Removing(id inventory.BlockID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.moving[id] < 0
}

// Unclaim ends a turn.
func (v *Vault) Unclaim(id inventory.BlockID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.moving[id] > 1 {
		v.moving[id]--
		return
	}
	delete(v.moving, id)
}
