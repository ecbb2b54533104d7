// Package preemption hears that this machine is going to be taken away, says so once, and remembers it.
//
// A Source listens in one place (a cloud's metadata service, logind, the people and scripts of this host) and gives Notices:
// what will happen, by when, and later that it changed or was taken back. A Watcher listens to several sources at once. An
// Incident sums up all notices about one end of the machine's life: how grave, by when, and, under a Policy, what stance the
// node should take. A Keeper keeps the one open incident on disk, so that neither a kill -9 nor a change of the clock takes
// any of the time away.
//
// Unknown is not "no". A metadata service that errs, hangs, refuses or talks nonsense changes no belief, ends no loop and
// slows no poll: its trouble is logged when it starts and when it ends. No source gives up.
//
// The package acts on nothing: it stops no workload, moves no byte and tells no coordinator. After a restart, pass what the
// Keeper remembers to Believe before the first Next, so that a notice that was taken back meanwhile is withdrawn, and not
// remembered for ever.
package preemption
