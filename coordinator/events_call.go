package coordinator

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

// Events sends the events after a place, and with follow also those to come.
func (s *operator) Events(r *api.EventsRequest, stream grpc.ServerStreamingServer[api.Event]) error {
	want := filter{types: r.GetTypes(), node: r.GetNode()}
	if err := want.check(); err != nil {
		return err
	}
	who, err := caller(stream.Context())
	if err != nil {
		return err
	}
	stuck := make(chan struct{})
	sub, err := s.audience.join(who, func() { close(stuck) })
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer context.AfterFunc(s.closing, cancel)()
	sent := make(chan error, 1)
	s.audience.senders.Go(func() {
		defer cancel()
		defer sub.leave()
		sent <- s.send(ctx, stream, sub, want, api.PlaceAfter(r), r.GetFollow())
	})
	select {
	case err = <-sent:
	case <-stuck:
		// Only the end of the call ends a send that waits for the reader.
		return status.Errorf(codes.DeadlineExceeded, "nothing was taken for %s: follow again after the last place", writePatience)
	}
	switch {
	case err == nil && context.Cause(stream.Context()) == errDeposed:
		return overtaken{errDeposed}
	case err == nil && s.closing.Err() != nil:
		return status.Error(codes.Unavailable, "the coordinator stops: follow again after the last place")
	}
	return err
}

// send writes events to a stream: up to the newest, or with stay until ctx ends.
func (s *operator) send(ctx context.Context, stream grpc.ServerStream, sub *subscriber, want filter, at api.Place, stay bool) error {
	r := s.ledger.reader(at)
	defer func() { s.audience.gaps.Add(int64(r.gaps)) }()
	for ctx.Err() == nil {
		events, news := r.more()
		if len(events) == 0 {
			if !stay {
				return nil
			}
			select {
			case <-news:
			case <-ctx.Done():
			}
			continue
		}
		sub.begin()
		for _, e := range events {
			if !want.wants(e) {
				continue
			}
			m, err := e.message(stream)
			if err != nil {
				return err
			}
			if err := stream.SendMsg(m); err != nil {
				return err
			}
		}
		sub.end()
	}
	return nil
}
