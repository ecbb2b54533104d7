// Package corpus makes files for an agent's stores: real files on disk, the same for the same seed, with an account of
// each file as it was written. A test or a benchmark that moves them can verify every block afterwards.
//
// It is for trying, measuring and testing Lifeboat; no production path imports it. It does not pretend to be an engine:
// what it writes is well formed and committed, beside a few leftovers that are not committed and that a scan must leave
// alone. The contents are random and do not compress.
//
// Memory does not grow with the bytes that are written, only with the number of files, which are listed. Nothing is
// synced: the files stand for what an engine wrote a while ago.
package corpus
