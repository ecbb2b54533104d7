package clustertest

import (
	"context"
	"errors"
	"io"

	"github.com/lifeboat/lifeboat/api"
)

// Transfer has the operator hand the lead to another coordinator.
func (c *Cluster) Transfer(reason string) {
	c.t.Helper()
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) error {
		_, err := o.TransferLeadership(ctx, &api.TransferLeadershipRequest{Reason: reason})
		return err
	})
}

// Audit are the records of operators' calls, in order.
func (c *Cluster) Audit() (records []*api.AuditRecord) {
	c.t.Helper()
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) error {
		records = nil
		stream, err := o.ListAudit(ctx, &api.ListAuditRequest{})
		if err != nil {
			return err
		}
		for {
			reply, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			records = append(records, reply.Records...)
		}
	})
	return records
}
