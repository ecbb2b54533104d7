// Package inventory knows what lies in a node's stores: which files a block is (the layouts), where each is, and what changed since the
// last look. It opens and reads them as they leave, and says where a landing block's files belong. It changes no file of an engine's.
//
// It does not know what leaves first or where to, nor what landed in a vault: package migration does. A Store may be used from any
// goroutine. Inventories are iterated and indexes lie on disk, so that memory does not grow with the number of blocks.
//
// The files by subject, in an order to read them:
//
//	what a block is:    id, count, tag, store, files, glance, values
//	  of Spark:         spark, spark_index, managers, subdirs, seat, kin
//	a look at a store:  openroot, renew, openat, walk, spread, places
//	  kept for later:   index_keep, index_look, index_file, index_scan, index_ahead
//	a file as it leaves: member_file, file_reader, file_reader_fill
package inventory
