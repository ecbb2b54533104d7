// Package manifest keeps the account of a drain: a line for every block that it met, with what became of it, written as receipts come and
// read again by whoever goes on with the drain, tells readers where a block went, or asks for the manifest. Its lines are JSON, by outcome
// in a file each.
//
// It knows nothing of peers, connections and disks but that its own may be full, or hang. What it cannot write is still counted.
//
// A manifest's lines: entry, line, version; written: ledger, lost, strike; read: read, last_lines, met_ids; carried elsewhere: copy, join.
package manifest
