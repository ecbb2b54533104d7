// Package manifest keeps the account of a drain: a line for every block that the drain met, with what became of it. Lines are written as
// receipts come. They are read when a drain goes on after a crash, when a reader is told where a block went, and when somebody asks for the
// manifest. They are JSON, in a file for each outcome.
//
// The package knows nothing of peers and connections, and of disks only that its own may be full, or hang. What it cannot write it still
// counts.
//
// A manifest's lines: entry, line, version; written: ledger, lost, strike; read: read, last_lines, met_ids; carried elsewhere: copy, join.
package manifest
