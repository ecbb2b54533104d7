package agent

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// accountTimeout bounds how long a node that is about to go looks for a peer that takes the account of its drain. It begins
// once the account is written, which alone takes some seconds for two million blocks.
const accountTimeout = 5 * time.Second

// leaveAccount sends the account of the drain to a peer, as a block like any other: the coordinator may be away until this
// machine is gone, or lose what it was told. It uses the time that is left for sending. Where none is left, which is the
// case when blocks were lost, it waits half of the tail for the coordinator to have the account, and if it has not, sends in
// the other half. Nothing waits for this call but the word to a cloud that the machine may go sooner.
func (c *course) leaveAccount(ctx context.Context) {
	select { // another pass may end while the account of the pass before is on its way
	case c.accounting <- struct{}{}:
		defer func() { <-c.accounting }()
	case <-ctx.Done():
		return
	}
	p, open := c.incidents.Open()
	if !open || p.Work.Kept || p.Work.Drained == nil || p.Work.Drained.Moved.Blocks+p.Work.Drained.Lost.Blocks == 0 {
		return
	}
	i := p.Incident.Ahead(time.Now())
	limit := i.Deadline() // where there is none, the machine is still there once drain.timeout is over
	if !limit.IsZero() {
		if sending := c.sendLimit(i); sending.After(time.Now()) {
			limit = sending
		} else if c.incidents.isTold(ctx, p.Work.Drained.Finished, time.Until(limit)/2) {
			return
		}
	}
	var err error
	over := await.Beside(func() { err = c.carryAccount(ctx, p, limit) })
	if c.refuge.untilHung(p.Incident.ID, over); !isClosed(over) {
		c.log.Warn("no peer took the manifest of the drain: only the coordinator will have it", "err", errLeft)
		return
	}
	switch {
	case err == nil:
		if err := c.incidents.Amend(func(w *work) { w.Kept = w.stands(p.Work.Drained.Finished) }); err != nil {
			c.log.Warn("cannot write to the journal that a peer has the manifest: a restart would send it once more", "err", err)
		}
	case ctx.Err() == nil:
		c.log.Warn("no peer took the manifest of the drain: only the coordinator will have it", "err", err)
	}
}

// isTold waits, for patience at most, until the coordinator has the account of the drain that ended at that time.
func (in *incidents) isTold(ctx context.Context, ended time.Time, patience time.Duration) bool {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	told := in.until(waiting, func(p page, _ bool) bool { return p.Work.Told || !p.Work.stands(ended) })
	return told || ctx.Err() != nil
}

// carryAccount writes the account and sends it, before limit if there is one.
func (c *course) carryAccount(ctx context.Context, p page, limit time.Time) (err error) {
	dir := filepath.Join(c.refuge.accountDir(p.Incident.ID), "account")
	from := filepath.Join(dir, "store")
	file := filepath.Join(from, api.AccountName(c.fleet.node, p.Incident.ID))
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	if err := c.writeAccount(file, p); err != nil {
		return err
	}
	store, err := inventory.OpenStore(inventory.StoreConfig{
		Name: api.AccountStore, Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Land: inventory.LandVault, Paths: []string{from},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	until := time.Now().Add(accountTimeout)
	if !limit.IsZero() && limit.Before(until) {
		until = limit
	}
	ctx, stop := context.WithDeadline(ctx, until)
	defer stop()
	cfg := c.drainConfig(p.Incident.ID, dir, 0)
	cfg.Stores, cfg.Only, cfg.Index, cfg.Settle, cfg.AtHome = []*inventory.Store{store}, []string{from}, nil, nil, nil
	cfg.Until = func() time.Time { return until }
	d := migration.NewDrain(cfg)
	sum, err := d.Run(ctx)
	if err == nil && sum.Moved.Blocks == 0 {
		err = errors.New("none took it in time")
	}
	return err
}

// writeAccount writes the messages that GetManifest would send, each after its length.
func (c *course) writeAccount(file string, p page) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	if err := c.account(p, func(m *api.GoodbyeRequest) error { _, err := protodelim.MarshalTo(w, m); return err }); err != nil {
		return err
	}
	return w.Flush()
}

// account sends the account of an incident in messages: the summary first, then the entries.
func (c *course) account(p page, send func(*api.GoodbyeRequest) error) error {
	m := &api.GoodbyeRequest{Summary: c.summary(p)}
	for e, err := range c.manifest(p.Incident.ID) {
		if err != nil {
			return err
		}
		m.Entries = append(m.Entries, apiEntry(e))
		if len(m.Entries) >= entriesPerMessage {
			if err := send(m); err != nil {
				return err
			}
			m = &api.GoodbyeRequest{}
		}
	}
	return send(m)
}
