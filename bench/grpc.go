package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// grpcStream is the best that can be built on gRPC: bench/grpcstream. It encrypts and checks as lifeboat does, and makes
// the named files; it syncs nothing.
type grpcStream struct{ program, pki string }

func newGRPCStream(ctx context.Context, root, work, pki string) (*grpcStream, error) {
	s := &grpcStream{program: filepath.Join(work, "grpcstream"), pki: pki}
	return s, build(ctx, root, s.program, "./bench/grpcstream")
}

func (s *grpcStream) name() string { return "grpc stream" }

func (s *grpcStream) move(ctx context.Context, from source, into string) (out outcome, err error) {
	target, at, err := site(into)
	if err != nil {
		return out, err
	}
	server, err := serving(ctx, at, filepath.Join(into, "grpc.log"), s.program, append(flagsOf(s.pki, "sink"), "-listen", at, "-into", target)...)
	if err != nil {
		return out, err
	}
	began := time.Now()
	_, out.cpu, err = command(ctx, s.program, append(flagsOf(s.pki, "source"), "-to", at, "-from", from.dir)...)
	out.sent = time.Since(began)
	out.told = out.sent
	cpu, stopped := server.stop()
	out.cpu += cpu
	if err = errors.Join(err, stopped); err != nil {
		return out, server.trouble(err)
	}
	return out, arrived(&out, began, target, from)
}

// flagsOf are the flags that give one of the bench's programs the certificate of that node.
func flagsOf(pki, node string) []string {
	file := func(name string) string { return filepath.Join(pki, name) }
	return []string{"-ca", file("ca.pem"), "-cert", file(node + ".pem"), "-key", file(node + ".key")}
}

// site makes the directory where a contender's files land, and finds a free address for its server.
func site(into string) (target, at string, err error) {
	ports, err := freePorts(1)
	if err != nil {
		return "", "", err
	}
	target = filepath.Join(into, "data")
	return target, ports[0], os.Mkdir(target, 0o755)
}

// serving starts a server and waits until it listens.
func serving(ctx context.Context, at, log, program string, args ...string) (*daemon, error) {
	server, err := start(ctx, log, program, args...)
	if err != nil {
		return nil, err
	}
	if err := server.listens(ctx, at); err != nil {
		_, stopped := server.stop()
		return nil, errors.Join(err, stopped)
	}
	return server, nil
}
