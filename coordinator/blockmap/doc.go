// Package blockmap maps each landed block of a fleet to its holders, as the holders report it. The map is in the leader's memory and never on
// a disk: after a failover the holders report again to the new leader. A block takes some fifty bytes and its name, without pointers.
//
// It sends no questions and verifies no reports: the coordinator, which fills it, has done both.
//
// The files, in an order to read them: blockmap, shelves, lapsed, arrivals, by_app.
package blockmap
