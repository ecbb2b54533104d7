package api

import (
	"fmt"
	"iter"
	"strings"
)

// NewBlockRun begins a run with one block.
func NewBlockRun(id string, bytes int64) *BlockRun {
	r := &BlockRun{}
	if store := strings.IndexByte(id, '/'); store >= 0 {
		if scope := strings.IndexByte(id[store+1:], '/'); scope >= 0 {
			r.Scope = id[:store+1+scope]
		}
	}
	r.Add(id, bytes)
	return r
}

// Add adds a block and reports true, unless the block's scope is not the run's.
func (r *BlockRun) Add(id string, bytes int64) bool {
	name := id
	if n := len(r.Scope); n > 0 {
		if len(id) <= n || id[n] != '/' || id[:n] != r.Scope {
			return false
		}
		name = id[n+1:]
	} else if strings.Count(id, "/") > 1 {
		return false
	}
	r.Names = append(r.Names, name...)
	r.Lengths = append(r.Lengths, uint32(len(name)))
	r.Bytes = append(r.Bytes, bytes)
	return true
}

// AddsUp says what is wrong with a run that another machine sent. The other methods rely on what it checks:
// call it first.
func (r *BlockRun) AddsUp() error {
	if len(r.GetLengths()) == 0 || len(r.Lengths) != len(r.Bytes) {
		return fmt.Errorf("a run of %d names and %d sizes: must be one of each for every block", len(r.GetLengths()), len(r.GetBytes()))
	}
	var sum uint64
	for _, n := range r.Lengths {
		sum += uint64(n)
	}
	if sum != uint64(len(r.Names)) {
		return fmt.Errorf("a run of %d names of %d bytes in all, with %d bytes of names: must be as many", len(r.Lengths), sum, len(r.Names))
	}
	return nil
}

// All yields the names, which share one string, and the sizes.
func (r *BlockRun) All() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		rest := string(r.GetNames())
		for i, n := range r.GetLengths() {
			if !yield(rest[:n], r.Bytes[i]) {
				return
			}
			rest = rest[n:]
		}
	}
}

// IDs yields the ids and the sizes.
func (r *BlockRun) IDs() iter.Seq2[string, int64] {
	if r.GetScope() == "" {
		return r.All()
	}
	return func(yield func(string, int64) bool) {
		for name, bytes := range r.All() {
			if !yield(r.Scope+"/"+name, bytes) {
				return
			}
		}
	}
}
