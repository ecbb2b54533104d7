package heartbeat

import (
	"context"
	"fmt"

	"github.com/lifeboat/lifeboat/api"
)

// Each of these asks the coordinator in use once, and returns its error: whether to ask again is the caller's business.
// One that is away is an error at once, or after connectLimit when nothing refuses the connection; one that is there and
// does not answer costs as long as the context allows.

// WorkerDecommission says that the node is leaving.
func (c *Client) WorkerDecommission(ctx context.Context, notice *api.Notice) error {
	sequence := c.sequence.next()
	return c.call("say that the node is leaving", func(m api.MembershipClient) error {
		_, err := m.WorkerDecommission(ctx, &api.WorkerDecommissionRequest{Node: c.cfg.Node, Incarnation: c.cfg.Incarnation, Notice: notice, Sequence: sequence})
		return err
	})
}

// Withdraw says that the notice behind an incident was taken back: the node stays.
func (c *Client) Withdraw(ctx context.Context, incident string) error {
	sequence := c.sequence.next()
	return c.call("withdraw "+incident, func(m api.MembershipClient) error {
		_, err := m.WithdrawDecommission(ctx, &api.WithdrawDecommissionRequest{Node: c.cfg.Node, Incarnation: c.cfg.Incarnation, Incident: incident, Sequence: sequence})
		return err
	})
}

// Unavailable announces a restart: the node will be silent, and come back.
func (c *Client) Unavailable(ctx context.Context) error {
	return c.call("announce a restart", func(m api.MembershipClient) error {
		_, err := m.ReportUnavailable(ctx, &api.ReportUnavailableRequest{Node: c.cfg.Node, Incarnation: c.cfg.Incarnation})
		return err
	})
}

// Locate asks where a block may be read.
func (c *Client) Locate(ctx context.Context, id string) (*api.LocateReply, error) {
	var reply *api.LocateReply
	err := c.call("locate "+id, func(m api.MembershipClient) (err error) {
		reply, err = m.Locate(ctx, &api.LocateRequest{Id: id})
		return err
	})
	return reply, err
}

func (c *Client) call(what string, ask func(api.MembershipClient) error) error {
	k, err := c.links.use()
	if err != nil {
		return err
	}
	defer c.links.done(k)
	if err := ask(k); err != nil {
		return fmt.Errorf("%s: coordinator %s: %w", what, k.address, err)
	}
	return nil
}
