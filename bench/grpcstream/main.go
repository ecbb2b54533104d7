// Command grpcstream is a contender of the benchmark: what a careful engineer would write with gRPC. It carries the files
// of a directory over four client streams, each on a connection of its own with mutual TLS; messages are bytes that no
// protobuf copies, with large windows and buffers, and a CRC-32C. Nothing is synced.
//
//	grpcstream -listen ADDR -into DIR -ca F -cert F -key F      until SIGTERM
//	grpcstream -to ADDR -from DIR -ca F -cert F -key F          until the last file is in its place
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "grpcstream: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	listen, into := flag.String("listen", "", "take files at `ADDR`"), flag.String("into", "", "put them into `DIR`")
	to, from := flag.String("to", "", "send files to `ADDR`"), flag.String("from", "", "the files of `DIR`")
	ca, cert, key := flag.String("ca", "", "`FILE`"), flag.String("cert", "", "`FILE`"), flag.String("key", "", "`FILE`")
	flag.Parse()
	cfg, err := mutual(*ca, *cert, *key)
	switch {
	case err != nil:
		return err
	case *listen != "":
		return take(ctx, *listen, *into, cfg)
	default:
		return send(ctx, *to, *from, cfg)
	}
}

// mutual trusts every certificate that the fleet's CA signed. It checks no names: the peers are dialled by address.
func mutual(ca, cert, key string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	signed := func(s tls.ConnectionState) error {
		intermediates := x509.NewCertPool()
		for _, c := range s.PeerCertificates[1:] {
			intermediates.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: intermediates,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert,
		InsecureSkipVerify: true, VerifyConnection: signed}, nil
}

const (
	connections = 4
	chunkBytes  = 256 << 10
	bufferBytes = 256 << 10
	window      = 8 << 20
	method      = "/bench.Stream/Put"
)

// raw is a codec that passes messages as they are.
type raw struct{}

func (raw) Name() string { return "raw" }

func (raw) Marshal(v any) (mem.BufferSlice, error) { return *v.(*mem.BufferSlice), nil }

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref() // the transport frees its own reference after this call
	*v.(*mem.BufferSlice) = data
	return nil
}

// A message is a header and a piece of a file. The header is 4 bytes of CRC-32C, 1 byte that is 1 for the last piece, 2
// bytes of the name's length, and the name.
const headerBytes = 7

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func send(ctx context.Context, addr, dir string, cfg *tls.Config) error {
	names := make(chan string, 1024)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(names)
		return filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			name, err := filepath.Rel(dir, p)
			if err != nil {
				return err
			}
			select {
			case names <- name:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	for range connections {
		g.Go(func() error { return sendSome(ctx, addr, dir, cfg, names) })
	}
	return g.Wait()
}

func sendSome(ctx context.Context, addr, dir string, cfg *tls.Config, names <-chan string) error {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(credentials.NewTLS(cfg)),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{})), grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(2*window),
		grpc.WithReadBufferSize(bufferBytes), grpc.WithWriteBufferSize(bufferBytes))
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method)
	if err != nil {
		return err
	}
	pool := mem.NewTieredBufferPool(256, 8<<10, 64<<10+512, chunkBytes)
	for name := range names {
		if err := sendFile(stream, pool, dir, name); err != nil {
			if errors.Is(err, io.EOF) { // the server has said why
				err = stream.RecvMsg(new(mem.BufferSlice))
			}
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	var done mem.BufferSlice
	if err := stream.RecvMsg(&done); err != nil {
		return err
	}
	done.Free()
	return nil
}

func sendFile(stream grpc.ClientStream, pool mem.BufferPool, dir, name string) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	for left := info.Size(); ; {
		n := int(min(left, chunkBytes))
		body := pool.Get(n)
		if _, err := io.ReadFull(f, (*body)[:n]); err != nil {
			return err
		}
		left -= int64(n)
		head := pool.Get(headerBytes + len(name))
		h := *head
		binary.BigEndian.PutUint32(h, crc32.Checksum((*body)[:n], castagnoli))
		h[4] = 0
		if left == 0 {
			h[4] = 1
		}
		binary.BigEndian.PutUint16(h[5:], uint16(len(name)))
		copy(h[headerBytes:], name)
		if err := stream.SendMsg(&mem.BufferSlice{mem.NewBuffer(head, pool), mem.NewBuffer(body, pool)}); err != nil {
			return err
		}
		if left == 0 {
			return nil
		}
	}
}

func take(ctx context.Context, addr, dir string, cfg *tls.Config) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	var made sync.Map
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(cfg)), grpc.ForceServerCodecV2(raw{}), grpc.MaxRecvMsgSize(1<<20),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(2*window), grpc.ReadBufferSize(bufferBytes), grpc.WriteBufferSize(bufferBytes))
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "bench.Stream", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: "Put", ClientStreams: true,
		Handler: func(_ any, stream grpc.ServerStream) error { return takeStream(stream, dir, &made) },
	}}}, struct{}{})
	undo := context.AfterFunc(ctx, server.Stop)
	defer undo()
	return server.Serve(l)
}

func takeStream(stream grpc.ServerStream, dir string, made *sync.Map) error {
	var f *os.File
	buf := make([]byte, chunkBytes)
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	for {
		var m mem.BufferSlice
		err := stream.RecvMsg(&m)
		if errors.Is(err, io.EOF) {
			return stream.SendMsg(&mem.BufferSlice{mem.SliceBuffer("done")})
		}
		if err != nil {
			return err
		}
		f, err = write(m, f, dir, made, buf)
		m.Free()
		if err != nil {
			return err
		}
	}
}

// write writes a piece into its file, and returns the file if more pieces are to come.
func write(m mem.BufferSlice, f *os.File, dir string, made *sync.Map, buf []byte) (*os.File, error) {
	r := m.Reader()
	defer r.Close()
	var h [headerBytes]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return f, err
	}
	name := make([]byte, binary.BigEndian.Uint16(h[5:]))
	if _, err := io.ReadFull(r, name); err != nil {
		return f, err
	}
	if f == nil {
		p := filepath.Join(dir, string(name))
		if parent := filepath.Dir(p); !filepath.IsLocal(string(name)) {
			return f, fmt.Errorf("%q: not below the directory", name)
		} else if _, ok := made.Load(parent); !ok {
			if err := os.MkdirAll(parent, 0o755); err != nil {
				return f, err
			}
			made.Store(parent, true)
		}
		var err error
		if f, err = os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err != nil {
			return nil, err
		}
	}
	body := buf[:min(r.Remaining(), len(buf))] // one copy saves a dozen small writes
	if _, err := io.ReadFull(r, body); err != nil {
		return f, err
	}
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(h[:]) {
		return f, fmt.Errorf("%s: checksum does not match", name)
	}
	if _, err := f.Write(body); err != nil {
		return f, err
	}
	if h[4] == 0 {
		return f, nil
	}
	return nil, f.Close()
}
