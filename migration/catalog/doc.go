// Package catalog keeps the list of what landed here from other nodes: for each block a record, on disk, of what it is, where it lies and
// what its bytes must be; for each segment, how far it is valid and which parts of it are free. So a lookup costs no memory, and what was
// committed survives kill -9.
//
// It never reads or writes a block, and decides nothing about one: its callers commit, remove or unpack, and say what the records
// become.
//
// The files, in an order to read them: record, away, catalog, change, lookup, weights, renumber, remake, compact, resident.
package catalog
