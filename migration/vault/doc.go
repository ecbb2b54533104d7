// Package vault is where landed blocks rest that have no place in a store: append-only segments, in any of several directories, of frames
// exactly as they came over the wire; the first directory also has the catalog of all blocks that landed here. The package reads blocks
// back and verifies every chunk, gives the space of removed blocks back, and if the catalog is lost makes a new one from the segments.
//
// A directory whose disk is away, or does not answer, is passed by: the rest of the vault serves. The package does not decide which blocks
// land, stay or go, and knows no stores' layouts: package receiver commits, removes, scrubs and unpacks.
//
// The files, in an order to read them: vault, dirs, segment, pieces; chunk, reader, replay, landed; claims, reclaim, unread; remake, salvage.
package vault
