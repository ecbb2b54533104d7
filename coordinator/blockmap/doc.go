// Package blockmap is where a fleet's landed blocks rest, by the words of their holders: a leader's memory and nothing on a disk, for holders
// say it anew to whoever leads. Some fifty bytes a block and its name, without pointers.
//
// It asks nobody and checks no words: whoever fills it has done that.
//
// The files, in an order to read them: blockmap, shelves, lapsed, arrivals, by_app.
package blockmap
