// Package preemption hears that this machine is going to be taken away, and says so once.
//
// A Source listens in one place (the EC2 metadata service, the people and scripts of this host) and gives Notices: what
// will happen, by when, and later that it changed or was taken back. A Watcher listens to several sources at once. An
// Incident is what all notices about one end of life add up to: how grave, by when, and what stance the node should take.
//
// Unknown is not "no". A metadata service that errs, hangs, refuses or talks nonsense changes no belief, ends no loop and
// slows no poll: it is logged when it starts and when it ends. Nothing here gives up.
//
// The package acts on nothing: it stops no workload, moves no byte and tells no coordinator. It keeps nothing on disk
// either. Who restarts hands what the journal remembers to Believe, before the first Next, so that a notice that was
// taken back meanwhile is withdrawn rather than remembered for ever.
package preemption
