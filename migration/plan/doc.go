// Package plan decides in which order blocks leave: by what they are worth for each byte, so that a drain has saved as much work as it
// could whenever its time runs out. It hands out blocks that a peer has room for, that can be there in time, and whose disks answer. A
// plan is spooled to disk: its memory does not grow with the number of blocks.
//
// It sends nothing, and knows of peers only what they have room for. It looks at the clock only to try again what failed, and to tell
// what landed here a moment ago.
//
// The files, in an order to read them: worth, wave, entry, plan, rack, spool, take, room.
package plan
