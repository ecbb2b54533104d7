// Package migration is the only mover of bytes in Lifeboat: how blocks cross to a peer, how they land there durably (in the vault, or the
// same place in the peer's store), and what becomes of them there. What lies in the stores package inventory tells, in which order it leaves
// package plan, what crosses is of package wire, the account of what became of it of package manifest; what landed here stands in package
// catalog and rests in package vault, and package reading serves it; how blocks lie in storage outside of the fleet is of package lastresort.
// How to work on disks that may hang is in package diskio.
//
// A block is moved or it is named as lost with a reason; a receipt is sent only after what it speaks of is durable; the
// sender's own copy is never touched. Memory does not grow with the number or the size of blocks: inventories are
// iterated, plans are spooled to disk, contents are chunked.
//
// The package does not decide when to drain, does not talk to the coordinator and does not choose who may connect: the
// agent hands it peers, connections that are already authenticated, and a context whose deadline is the end of sending.
//
// Who may call what when: a Store and a Vault may be used from any goroutine. One Drain runs at a time. A Receiver's Run
// runs once, and its vault outlives it.
//
// The packages below are a line, of which each uses only those before it: fields, diskio, inventory, wire, manifest, plan, catalog, vault,
// lastresort, reading.
//
// The files by subject, in an order to read them:
//
//	what leaves first:    values_said
//	a drain:              drain, scan, source, latest, history, unseen, claims, homes, questions, looks, oversee, peers, fan, inplace, lane, send, write, resume, window
//	  reads its blocks:   fetch_ahead
//	  over connections:   conn, pace, throttle, traffic, unsent
//	  its account:        shorten, adopt, leftover
//	a receiver:           receive, inbound, unfinished, inbound_land, room, budget, allotment, known, conflict, glance, nowhere, outbox
//	  to its receipts:    landing, publish, commit
//	what landed:          unmounted, carried
//	  becomes files:      unpack, unpack_group
//	  is read back:       scrub, scrub_aside, scrub_read, again
//	  goes again:         removal, aged, over, ghosts; forget, forget_tell, forgotten, look_back, catch_up
//	the last resort:      fallback_content, fallback_when, fallback_send, fallback_many
//	sick disks:           drain_disks
package migration
