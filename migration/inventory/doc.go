// Package inventory knows what lies in a node's stores: which files make a block (the layouts), where each file is, and what has
// changed since the last look. It opens and reads a block's files when the block leaves, and says where the files of a landing block
// belong. It never changes an engine's file.
//
// It does not decide which block leaves first or where to (packages plan and migration), and knows nothing of what landed in a
// vault. A Store may be used from any goroutine. Inventories are iterated and indexes lie on disk, so that memory does not grow
// with the number of blocks.
//
// The files by subject, in an order to read them:
//
//	what a block is:    id, count, tag, store, files, glance, values
//	  of Spark:         spark, spark_index, managers, subdirs, seat, kin
//	a look at a store:  openroot, renew, openat, walk, spread, places
//	  kept for later:   index_keep, index_look, index_file, index_scan, index_ahead
//	a file as it leaves: member_file, file_reader, file_reader_fill
package inventory
