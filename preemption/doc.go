// Package preemption hears that this machine is going to be taken away, says so once, and remembers it.
//
// A Source listens in one place (a cloud's metadata service, logind, the people and scripts of this host) and gives
// Notices: what will happen, by when, and later that it changed or was taken back. A Watcher listens to several sources
// at once. An Incident is what all notices about one end of life add up to: how grave, by when, and, under a Policy, what
// stance the node should take. A Keeper keeps the one open incident on disk, so that neither a kill -9 nor a clock that is
// set takes any of the time away.
//
// Unknown is not "no". A metadata service that errs, hangs, refuses or talks nonsense changes no belief, ends no loop and
// slows no poll: it is logged when it starts and when it ends. Nothing here gives up.
//
// The package acts on nothing: it stops no workload, moves no byte and tells no coordinator. Who restarts hands what the
// Keeper remembers to Believe, before the first Next, so that a notice that was taken back meanwhile is withdrawn rather
// than remembered for ever.
package preemption
