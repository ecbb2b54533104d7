// Package plan says in which order blocks should leave: by what they are worth for each byte, so that whatever time remains has saved as
// much work as it could. It hands them out by what a peer has room for, what is there in time, and which disks answer. It is spooled to
// disk: its memory does not grow with the blocks.
//
// It sends nothing, knows of peers what they have room for, and looks at no clock but to try again what failed.
//
// The files, in an order to read them: worth, wave, entry, plan, rack, spool, take, room.
package plan
