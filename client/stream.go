package client

import (
	"context"

	"google.golang.org/grpc"
)

// NewStream implements grpc.ClientConnInterface. A stream of answers to one request follows the leader until its first
// answer has come. Later its end goes to the caller, who alone knows from where to go on.
func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s := &stream{search: c.look(ctx), open: func(conn *grpc.ClientConn) (grpc.ClientStream, error) {
		return conn.NewStream(ctx, desc, method, opts...)
	}}
	for {
		err := s.begin()
		if err == nil {
			break
		}
		if !s.goOn(s.address, err) {
			return nil, s.conclude(err)
		}
	}
	if desc.ClientStreams {
		return s.ClientStream, nil // messages that were sent cannot be sent again from here
	}
	return s, nil
}

type stream struct {
	grpc.ClientStream
	*search
	open     func(*grpc.ClientConn) (grpc.ClientStream, error)
	address  string
	request  any
	asked    bool
	answered bool
}

func (s *stream) begin() (err error) {
	address, conn, err := s.use()
	if err != nil {
		return err
	}
	s.address = address
	s.ClientStream, err = s.open(conn)
	return err
}

// SendMsg implements grpc.ClientStream.
func (s *stream) SendMsg(m any) error {
	s.request = m
	return s.ClientStream.SendMsg(m)
}

// CloseSend implements grpc.ClientStream.
func (s *stream) CloseSend() error {
	s.asked = true
	return s.ClientStream.CloseSend()
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	for err != nil && !s.answered && s.asked && s.goOn(s.address, err) {
		if err = s.again(); err == nil {
			err = s.ClientStream.RecvMsg(m)
		}
	}
	if err != nil && !s.answered {
		return s.conclude(err)
	}
	s.answered = true
	return err
}

// again sends the request to another coordinator.
func (s *stream) again() error {
	if err := s.begin(); err != nil {
		return err
	}
	if err := s.ClientStream.SendMsg(s.request); err != nil {
		return s.ClientStream.RecvMsg(nil) // it returns why
	}
	return s.ClientStream.CloseSend()
}
