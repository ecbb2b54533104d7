// Package migration is the only mover of bytes in Lifeboat. It knows what lies in the stores (the layouts and their
// inventory), in which order it should leave (the plan), how it crosses to a peer (framed streams over mutual TLS), how
// it lands there durably (the vault's segments, or the same place in the peer's store), and how it is read back.
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
package migration
