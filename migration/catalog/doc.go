// Package catalog keeps what landed here from other nodes: for each block a record, on disk, of what it is, where it lies and what it must
// read as; and of each segment, how far it is valid and which parts of it are free. So a lookup costs no memory, and what is told survives
// kill -9.
//
// It never reads or writes a block, and takes no decision about one: who commits, removes or unpacks says what the records become.
//
// The files, in an order to read them: record, away, catalog, change, lookup, weights, renumber, remake, compact, resident.
package catalog
