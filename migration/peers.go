package migration

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"
)

// peerState is what a drain knows of a peer, shared by its lanes.
type peerState struct {
	Peer
	moved    Count
	trouble  string
	failures int // in a row
}

// lookForPeers is how often a drain asks who its peers are now.
const lookForPeers = 500 * time.Millisecond

// runLanes keeps lanes to every peer until all blocks are settled or ctx ends.
func (d *Drain) runLanes(ctx context.Context) {
	if d.plan.first(ctx) != nil || d.plan.settled() {
		return // no peer is bothered for nothing
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var lanes sync.WaitGroup
	defer lanes.Wait()
	if d.fallback != nil {
		for range d.fallback.Streams {
			lanes.Go(func() {
				if d.runFallback(ctx) {
					stop()
				}
			})
		}
	}
	tick := time.NewTicker(lookForPeers)
	defer tick.Stop()
	for {
		for _, p := range d.newPeers() {
			for range d.cfg.Connections {
				lanes.Go(func() {
					if d.runLane(ctx, p) {
						stop()
					}
				})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if d.plan.settled() {
				return
			}
		}
	}
}

// newPeers returns the peers that were not known before, and takes note of where the others are now.
func (d *Drain) newPeers() (all []*peerState) {
	peers := d.cfg.Peers()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range peers {
		state, known := d.peers[p.Node]
		switch {
		case p.Node == d.cfg.Node:
		case known:
			// It may have come back at another address. Its name stays, and is read without the lock.
			state.Address, state.Zone, state.Pool, state.RoomBytes = p.Address, p.Zone, p.Pool, p.RoomBytes
		default:
			state = &peerState{Peer: p}
			d.peers[p.Node] = state
			all = append(all, state)
		}
	}
	return all
}

// Back-off of a peer that is in trouble: short at first, because 30 seconds are all there is.
const (
	backOffLeast = 100 * time.Millisecond
	backOffMost  = 5 * time.Second
)

func backOff(failures int) time.Duration {
	return min(backOffLeast<<min(failures, 10), backOffMost)
}

// runLane sends blocks to one peer over one connection after another, until all blocks are settled (true) or ctx ends.
func (d *Drain) runLane(ctx context.Context, p *peerState) (settled bool) {
	for ctx.Err() == nil {
		err := d.connectAndSend(ctx, p)
		if err == errSettled {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if silent(err) {
			continue // that is no fault of the peer
		}
		pause := time.NewTimer(d.note(p, err))
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
	return false
}

// refusedError is a peer's no to a whole stream.
type refusedError struct {
	reason string
	retry  time.Duration
}

func (e *refusedError) Error() string { return e.reason }

// note keeps what went wrong with a peer and says how long to leave it alone.
func (d *Drain) note(p *peerState, err error) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.failures == 0 {
		d.cfg.Log.Warn("peer in trouble", "peer", p.Node, "err", err)
	}
	p.trouble = err.Error()
	p.failures++
	if refused, ok := errors.AsType[*refusedError](err); ok && refused.retry > 0 {
		return min(refused.retry, backOffMost)
	}
	return backOff(p.failures)
}

// greeted says that a peer let a stream begin. It is well again only once it takes something (moved): one that greets and
// fails must not be asked ten times a second.
func (d *Drain) greeted(p *peerState) (failures int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.trouble = ""
	return p.failures
}

func (d *Drain) failures(p *peerState) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return p.failures
}

// moved books blocks whose receipts came from a peer.
func (d *Drain) moved(p *peerState, blocks ...entry) {
	if d.fallback == nil || p != d.fallback.state {
		d.peerTook()
	}
	entries := make([]Entry, len(blocks))
	var n Count
	for i, e := range blocks {
		v := e.version()
		entries[i] = Entry{ID: string(e.ID), Bytes: e.Bytes(), Outcome: Moved, Peer: p.Node, Version: hex.EncodeToString(v[:])}
		n.Blocks++
		n.Bytes += e.Bytes()
	}
	d.ledger.add(entries...)
	d.mu.Lock()
	p.moved.Blocks += n.Blocks
	p.moved.Bytes += n.Bytes
	if p.failures > 0 {
		d.cfg.Log.Info("peer is well again", "peer", p.Node)
	}
	p.trouble, p.failures = "", 0
	d.mu.Unlock()
	d.plan.settle(len(blocks))
}

// describe names a block and a peer in an error.
func describe(id BlockID, peer string, err error) error {
	return fmt.Errorf("send block %s to %s: %w", id, peer, err)
}
