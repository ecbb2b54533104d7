// Package migration is how a node's blocks leave it: a Drain carries them to peers before the deadline, or to storage outside of the fleet,
// and tells what became of each. Package inventory tells what lies in the stores, plan in which order it leaves, wire how it crosses to a
// peer, and manifest keeps the account of what became of it. At the other end, package receiver takes the blocks; catalog knows what landed,
// vault keeps the bytes, and reading serves them. Package lastresort lays blocks out in storage outside of the fleet. Package diskio is how
// all of these work on disks that may hang.
//
// A block is moved or it is named as lost with a reason; a receipt is sent only after what it speaks of is durable; the
// sender's own copy is never touched. Memory does not grow with the number or the size of blocks: inventories are
// iterated, plans are spooled to disk, contents are chunked.
//
// The package does not decide when to drain, does not talk to the coordinator and does not choose who may connect: the
// agent hands it peers, connections that are already authenticated, and a context whose deadline is the end of sending.
//
// Who may call what when: a Store and a Vault may be used from any goroutine. One Drain runs at a time.
//
// The packages below form a line, in which each imports only those before it: fields, diskio, inventory, wire, manifest, plan, catalog,
// vault, lastresort, reading, receiver.
//
// What a drain consists of: each type owns what nobody else writes, and is given what it needs of those before it, which for most
// is the cargo. The Drain puts them together, runs them and ends them. The files by subject, in an order to read them:
//
//	what leaves first:                          values_said
//	source, the blocks that lie here:           source, carried
//	account, what became of them:               account, history, shorten, adopt, leftover
//	endings, apps that are over:                endings
//	outflow, how much leaves, until when:       outflow
//	homes, which may have what came from them:  homes, questions
//	claims, what peers may have no more:        claims, again
//	survey, looking until all is quiet:         scan, scan_disks, looks, unseen, thaw
//	carriers, lanes and uploads at work:        carriers
//	peers, who takes blocks:                    peers, room, fan, inplace, fallback_when
//	lanes, connections to them:                 lanes, lane, send, write, fetch_ahead, resume, books, window, signs
//	  how much they begin:                      flow, pace, traffic, unsent
//	fallback, for what no peer takes:           fallback_send, fallback_upload, fallback_content, fallback_pace, fallback_many
//	withdrawal, what peers are to forget:       forget, forget_tell, look_back
//	Drain, the whole:                           drain
package migration
