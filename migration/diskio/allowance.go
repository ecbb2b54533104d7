package diskio

import (
	"fmt"
	"sync/atomic"
	"syscall"
)

// Allowance is how many bytes may yet be written. Nil: as many as the disk takes.
type Allowance struct{ left atomic.Int64 }

// Allow is an allowance of so many bytes.
func Allow(bytes int64) *Allowance {
	a := new(Allowance)
	a.left.Store(bytes)
	return a
}

// Take takes so many bytes off the allowance, or returns ENOSPC if fewer are left.
func (a *Allowance) Take(bytes int) error {
	if a == nil || a.left.Add(int64(-bytes)) >= 0 {
		return nil
	}
	a.left.Add(int64(bytes))
	return fmt.Errorf("write no more than was allowed: %w", syscall.ENOSPC)
}

// GiveBack lets so many bytes be written once more.
func (a *Allowance) GiveBack(bytes int64) {
	if a != nil {
		a.left.Add(bytes)
	}
}
