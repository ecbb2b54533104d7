package heartbeat

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
)

// electionPatience is how long a call looks for a leader among several coordinators: twice as long as an election takes with
// the slowest settings that a coordinator allows.
const electionPatience = 8 * time.Second

// Each of these calls asks the coordinator in use and returns its error: whether to ask again is the caller's business. A
// coordinator that is away is an error at once, or after connectLimit when nothing refuses the connection. One that is there
// and does not answer costs as long as the context allows. Among several coordinators, a call turns from one that does not
// lead or is away to the next, until one leads or electionPatience is over.

// WorkerDecommission says that the node is leaving.
func (c *Client) WorkerDecommission(ctx context.Context, notice *api.Notice) error {
	sequence, asked := c.sequence.next(), time.Now()
	return c.call(ctx, "say that the node is leaving", func(m *link) error {
		r := &api.WorkerDecommissionRequest{Node: c.cfg.Node, Incarnation: c.cfg.Incarnation, Notice: notice, Sequence: sequence}
		if left := notice.GetRemaining(); left != nil { // an election and a handshake may have taken part of it
			r.Notice = proto.CloneOf(notice)
			r.Notice.Remaining = durationpb.New(left.AsDuration() - time.Since(asked))
		}
		_, err := m.WorkerDecommission(ctx, r)
		return err
	})
}

// Withdraw says that the notice behind an incident was taken back: the node stays.
func (c *Client) Withdraw(ctx context.Context, incident string) error {
	sequence := c.sequence.next()
	return c.call(ctx, "withdraw "+incident, func(m *link) error {
		_, err := m.WithdrawDecommission(ctx, &api.WithdrawDecommissionRequest{Node: c.cfg.Node, Incarnation: c.cfg.Incarnation, Incident: incident, Sequence: sequence})
		return err
	})
}

// Unavailable announces a restart: the node will be silent, and come back. No beat follows, unless this fails: one that came
// after it would bring the node back.
func (c *Client) Unavailable(ctx context.Context) (err error) {
	c.quiet.Store(true)
	defer func() { c.quiet.Store(err == nil) }()
	for range 2 { // a beat that was under way may overtake it
		sequence := c.sequence.next()
		err = c.call(ctx, "announce a restart", func(m *link) error {
			_, err := m.ReportUnavailable(ctx, &api.ReportUnavailableRequest{Node: c.cfg.Node, Incarnation: c.cfg.Incarnation, Sequence: sequence})
			return err
		})
		if status.Code(err) != codes.Aborted {
			return err
		}
	}
	return err
}

// Locate asks where a block may be read. past says that its holders were asked in vain. after, unless empty, is the last
// node that was asked in vain of those that could have it.
func (c *Client) Locate(ctx context.Context, id string, past bool, after string) (*api.LocateReply, error) {
	var reply *api.LocateReply
	err := c.call(ctx, "locate "+id, func(m *link) (err error) {
		reply, err = m.Locate(ctx, &api.LocateRequest{Id: id, PastHolders: past, After: after})
		return err
	})
	return reply, err
}

// Renew asks for a new certificate with the name and the key of the one in use: request is DER, the answers are PEM. A
// coordinator that makes no certificates refuses with FAILED_PRECONDITION.
func (c *Client) Renew(ctx context.Context, request []byte) (certificate, ca []byte, err error) {
	err = c.call(ctx, "renew the certificate", func(m *link) error {
		reply, err := m.Renew(ctx, &api.RenewRequest{Request: request})
		certificate, ca = reply.GetCertificate(), reply.GetCa()
		return err
	})
	return certificate, ca, err
}

func (c *Client) call(ctx context.Context, what string, ask func(*link) error) error {
	until := time.Now().Add(electionPatience)
	for led := false; ; {
		k, err := c.links.use()
		if err != nil {
			return err
		}
		k.connect(ctx)
		if err = ask(k); err != nil {
			err = plainError{fmt.Errorf("%s: coordinator %s: %w", what, k.address, err)}
		}
		_, follows := api.LeaderOf(err)
		away := follows || len(c.cfg.Coordinators) > 1 && status.Code(err) == codes.Unavailable
		told := away && c.links.leave(k, err)
		c.links.done(k)
		if !away || ctx.Err() != nil || time.Now().After(until) {
			return err
		}
		if led = told && !led; !led { // two may name each other
			await.Sleep(ctx, jittered(turnPause))
		}
	}
}
