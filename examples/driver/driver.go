package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/client"
)

// driver is what a scheduler knows of a fleet: which nodes may have work, and which have the blocks that its job needs.
type driver struct {
	conn   *client.Conn
	state  string // the file that keeps its place
	out    io.Writer
	term   uint64              // of the coordinator that told the last event
	works  map[string]bool     // nodes that may have work
	blocks map[string][]string // the blocks of its job, and the nodes that have them
}

func newDriver(conn *client.Conn, state string, blocks []string, out io.Writer) *driver {
	d := &driver{conn: conn, state: state, out: out, works: map[string]bool{}, blocks: map[string][]string{}}
	for _, id := range blocks {
		d.blocks[id] = nil
	}
	return d
}

// Run follows the fleet until ctx ends.
func (d *driver) Run(ctx context.Context) error {
	place, err := d.begin(ctx)
	if err != nil {
		return err
	}
	if err := d.list(ctx); err != nil {
		return err
	}
	for e, err := range d.conn.Events(ctx, place, client.Filter{}) {
		if err != nil {
			d.say("%v: the nodes stay as they were last known", err)
			continue
		}
		if err := d.heed(ctx, e); err != nil && ctx.Err() == nil {
			return err // the place is not written down, so a restart meets the same event again
		}
		if err := d.keep(e.Place); err != nil {
			return err
		}
	}
	return nil
}

// begin returns the place to go on from: after the last event that was heeded, or the first time, after the newest
// event. It is called before the nodes are listed, so that nothing is missed between the two.
func (d *driver) begin(ctx context.Context) (client.Place, error) {
	text, err := os.ReadFile(d.state)
	if errors.Is(err, os.ErrNotExist) {
		return d.conn.Newest(ctx)
	}
	if err != nil {
		return client.Place{}, err
	}
	return client.ParsePlace(strings.TrimSpace(string(text)))
}

// keep writes the place down, whole or not at all.
func (d *driver) keep(place client.Place) error {
	if err := os.WriteFile(d.state+".new", []byte(place.String()+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(d.state+".new", d.state)
}

// list asks for all nodes and blocks anew.
func (d *driver) list(ctx context.Context) error {
	nodes, err := d.conn.Nodes(ctx)
	if err != nil {
		return err
	}
	was := d.works
	d.works = map[string]bool{}
	for _, n := range nodes {
		d.works[n.GetName()] = was[n.GetName()]
		d.schedule(n.GetName(), n.GetSchedulable(), n.GetState())
	}
	return d.locate(ctx, "")
}

// heed does what an event asks for.
func (d *driver) heed(ctx context.Context, e client.Event) error {
	was := d.term
	if d.term = e.Place.Term; was != 0 && was != d.term && e.Type != client.Gap {
		// Another coordinator leads. It does not repeat what the last one alone told.
		if err := d.list(ctx); err != nil {
			return err
		}
	}
	switch e.Type {
	case client.Gap:
		d.say("events are missing: all is listed anew")
		return d.list(ctx)
	case "NodeDecommissioning", "WorkerDecommission", "NodeShutdown", "NodeExcluded", "NodeDeactivated", "NodeSuspect", "NodeUnschedulable":
		d.schedule(e.Node, false, e.Type)
		return nil
	case "NodeDecommissioned", "NodeLost", "NodeReplaced", "NodeForgotten":
		d.schedule(e.Node, false, e.Type)
		return d.locate(ctx, e.Node)
	case "BlocksMoved":
		return d.locate(ctx, e.Data["from"])
	case "BlocksBroken":
		return d.locate(ctx, e.Node)
	case "NodeRegistered", "NodeReturned", "NodeRecommissioned", "NodeReadmitted", "NodeReactivated", "NodeTrusted", "NodeSchedulable":
		// The event says why the node may have work again. Whether something else speaks against it, only the node's
		// record tells.
		n, err := d.conn.Node(ctx, e.Node)
		if status.Code(err) == codes.NotFound {
			return nil // gone meanwhile: the event that says so comes
		}
		if err != nil {
			return err
		}
		d.schedule(e.Node, n.GetSchedulable(), e.Type)
	}
	return nil
}

// schedule gives a node work, or stops giving it any.
func (d *driver) schedule(node string, may bool, why string) {
	if d.works[node] == may {
		return
	}
	d.works[node] = may
	if may {
		d.say("%s gets work (%s)", node, why)
	} else {
		d.say("%s gets no more work (%s)", node, why)
	}
}

// locate asks where blocks are: those that were at a node, or that no node was known to have; with from empty, all.
func (d *driver) locate(ctx context.Context, from string) error {
	for id, was := range d.blocks {
		if from != "" && len(was) > 0 && !slices.Contains(was, from) {
			continue
		}
		r, err := d.conn.Locate(ctx, id)
		if err != nil {
			return err
		}
		var now, shown []string
		for _, h := range r.GetHolders() {
			now, shown = append(now, h.GetNode()), append(shown, h.GetNode()+" at "+h.GetAddress())
		}
		if slices.Equal(now, was) {
			continue
		}
		d.blocks[id] = now
		switch {
		case len(now) > 0:
			d.say("block %s is read from %s", id, strings.Join(shown, ", "))
		case r.GetState() == "lost":
			d.say("block %s is lost: what made it has to run again", id)
		default: // client.Blocks asks every node that may have it, such as the one that it came from
			d.say("block %s is %s to the coordinator: any agent says whether a node has it", id, r.GetState())
		}
	}
	return nil
}

func (d *driver) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }
