package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

// gate lets calls through if this coordinator leads, and tells callers of one that does not which coordinator leads.
type gate struct {
	log     *slog.Logger
	own     string // this coordinator's name
	ledger  *ledger
	access  *access
	denials *denials
	auditor *auditor
}

// anybodys reports whether a coordinator answers a call for itself, whether it leads or not.
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
	if err := g.access.authorise(ctx, info.FullMethod); err != nil {
		return nil, g.denied(ctx, info.FullMethod, err)
	}
	if !anybodys(info.FullMethod) {
		if _, err := g.ledger.leadSoon(ctx); err != nil {
			return nil, g.redirect(err)
		}
	}
	ctx, asked := g.audited(ctx, info.FullMethod, req)
	reply, err := next(ctx, req)
	return reply, g.redirect(g.auditor.settle(ctx, asked, err))
}

// denied logs a call that its caller may not make.
func (g gate) denied(ctx context.Context, method string, err error) error {
	who := "?"
	if name, unknown := caller(ctx); unknown == nil {
		who = name.String()
	}
	if times := g.denials.count(who+" "+method, time.Now()); times > 0 {
		g.log.Warn("a call was refused", "who", who, "from", from(ctx), "method", method, "times", times, "err", err)
	}
	return err
}

// stream handles a streaming call. The call ends with the term in which it began, for what follows is for the next leader to say.
func (g gate) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx := stream.Context()
	if err := g.access.authorise(ctx, info.FullMethod); err != nil {
		return g.denied(ctx, info.FullMethod, err)
	}
	if anybodys(info.FullMethod) {
		return next(srv, stream)
	}
	term, err := g.ledger.leadSoon(ctx)
	if err != nil {
		return g.redirect(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(term, func() { cancel(errDeposed) })()
	ctx, asked := g.audited(ctx, info.FullMethod, nil)
	err = g.auditor.settle(ctx, asked, next(srv, &bounded{stream, ctx}))
	if err != nil && context.Cause(ctx) == errDeposed {
		return g.redirect(overtaken{errDeposed})
	}
	return g.redirect(err)
}

// bounded is a stream with a context of its own, which ends with the term.
type bounded struct {
	grpc.ServerStream
	ctx context.Context
}

func (b *bounded) Context() context.Context { return b.ctx }

// overtaken is the error of a call whose coordinator leads no more. redirect replaces it by one that says which coordinator leads.
type overtaken struct{ error }

func (o overtaken) Unwrap() error { return o.error }

// redirect turns an error that means "not the leader" into one with the leader's address, which clients follow.
func (g gate) redirect(err error) error {
	if _, ok := errors.AsType[overtaken](err); !ok && !errors.Is(err, errFollows) {
		return err
	}
	why := errFollows
	if errors.Is(err, errDeposed) {
		why = errDeposed // the client that repeats the call may find it done
	}
	hint := &api.NotLeader{}
	words := fmt.Sprintf("%s: %v, and no leader is known: ask again in a second", g.own, why)
	if name, address := g.ledger.leader(); name != "" && name != g.own {
		hint.Leader, hint.Address = name, address
		words = fmt.Sprintf("%s: %v: %s leads, at %s", g.own, why, name, address)
	} else if outside := g.ledger.outside(); outside != "" && name == "" {
		words = fmt.Sprintf("%s: %s", g.own, outside)
	}
	told, err := status.New(codes.Unavailable, words).WithDetails(hint)
	if err != nil {
		return status.Error(codes.Unavailable, words)
	}
	return told.Err()
}
