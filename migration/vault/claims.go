package vault

import "github.com/lifeboat/lifeboat/migration/inventory"

// ClaimNaming and ClaimRemoval begin a turn with the files of a block in place, which Unclaim ends: several goroutines may
// name the files at a time, or one may remove them. ClaimNaming reports false while they are being removed.
func (v *Vault) ClaimNaming(id inventory.BlockID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.moving[id] < 0 {
		return false
	}
	v.moving[id]++
	return true
}

// ClaimRemoval reports false while another goroutine has a turn.
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
