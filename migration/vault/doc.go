// Package vault is where landed blocks rest when their store does not want them in its place: append-only segments of frames exactly as they
// came over the wire, in any of several directories, with the catalog of all that landed here in the first. It reads blocks back with every
// chunk verified, gives the space of removed ones back, and makes a catalog that is lost anew from the segments.
//
// A directory whose disk is away, or does not answer, is passed by: the rest of the vault serves. The package does not decide which blocks
// land, stay or go, and knows no stores: who commits, removes, scrubs and unpacks is in package migration.
//
// The files, in an order to read them: vault, dirs, segment, pieces; chunk, reader, replay, landed; claims, reclaim, unread; remake, salvage.
package vault
