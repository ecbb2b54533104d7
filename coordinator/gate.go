package coordinator

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

// gate lets calls through to a coordinator that leads, and tells the others' callers who does.
type gate struct{ *fleet }

// anybodys are the calls that a coordinator answers for itself, whether it leads or not.
func anybodys(method string) bool {
	switch method {
	case api.Operator_GetStatus_FullMethodName,
		api.Coordination_GetPosition_FullMethodName,
		api.Coordination_KeepManifest_FullMethodName,
		api.Coordination_FetchManifest_FullMethodName:
		return true
	}
	return false
}

func (g gate) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := authorise(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	if !anybodys(info.FullMethod) {
		if _, err := g.ledger.lead(); err != nil {
			return nil, g.redirect(err)
		}
	}
	reply, err := next(ctx, req)
	return reply, g.redirect(err)
}

// stream ends with the time as the leader in which it began: what follows is for the next one to say.
func (g gate) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx := stream.Context()
	if err := authorise(ctx, info.FullMethod); err != nil {
		return err
	}
	if anybodys(info.FullMethod) {
		return next(srv, stream)
	}
	term, err := g.ledger.lead()
	if err != nil {
		return g.redirect(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(term, func() { cancel(errDeposed) })()
	err = next(srv, &bounded{stream, ctx})
	if err != nil && context.Cause(ctx) == errDeposed {
		return g.redirect(overtaken{errDeposed})
	}
	return g.redirect(err)
}

// bounded is a stream that its handler sees end earlier.
type bounded struct {
	grpc.ServerStream
	ctx context.Context
}

func (b *bounded) Context() context.Context { return b.ctx }

// overtaken is what a call ends with whose coordinator leads no more. redirect says instead who leads.
type overtaken struct{ error }

// redirect turns the want of a leader into words that clients follow.
func (g gate) redirect(err error) error {
	if _, ok := errors.AsType[overtaken](err); !ok && !errors.Is(err, errFollows) {
		return err
	}
	hint := &api.NotLeader{}
	words := fmt.Sprintf("%s: %v, and no leader is known: ask again in a second", g.cfg.Name, errFollows)
	if name, address := g.ledger.leader(); name != "" && name != g.cfg.Name {
		hint.Leader, hint.Address = name, address
		words = fmt.Sprintf("%s: %v: %s at %s does", g.cfg.Name, errFollows, name, address)
	}
	told, err := status.New(codes.Unavailable, words).WithDetails(hint)
	if err != nil {
		return status.Error(codes.Unavailable, words)
	}
	return told.Err()
}
