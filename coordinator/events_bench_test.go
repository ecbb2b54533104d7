package coordinator

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/client"
)

// BenchmarkSubscribers measures the time from a notice's call until the last subscriber has read its event: decided, on the disk, and sent
// over loopback TLS, one connection each, with all clients in this process.
func BenchmarkSubscribers(b *testing.B) {
	for _, way := range []struct {
		name   string
		follow func(b *testing.B, ctx context.Context, grpcAt, httpAt string, saw func())
	}{{"sse", followPage}, {"grpc", followCalls}} {
		for _, n := range []int{100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", way.name, n), func(b *testing.B) { benchSubscribers(b, n, way.follow) })
		}
	}
}

func benchSubscribers(b *testing.B, n int, follow func(b *testing.B, ctx context.Context, grpcAt, httpAt string, saw func())) {
	cfg := Default()
	cfg.Name, cfg.DataDir = "c", b.TempDir()
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		return l
	}
	calls, pages := listen(), listen()
	ready := make(chan struct{})
	c, err := New(cfg, Deps{Identity: certs.Dev(certs.Name{Role: certs.RoleCoordinator, Name: "c"}), GRPC: calls, HTTP: pages, Ready: func() { close(ready) }})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	<-ready

	var mu sync.Mutex
	left, done := 0, make(chan struct{})
	saw := func() {
		mu.Lock()
		defer mu.Unlock()
		if left--; left == 0 {
			close(done)
		}
	}
	expect := func() <-chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		left, done = n, make(chan struct{})
		return done
	}

	tls := certs.Dev(certs.Name{Role: certs.RoleNode, Name: "a"}).Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator})
	conn, err := grpc.NewClient(calls.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(tls)))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	node := api.NewMembershipClient(conn)
	if _, err := node.Register(ctx, &api.RegisterRequest{Node: "a", Incarnation: "i", PeerAddress: "a:7412"}); err != nil {
		b.Fatal(err)
	}
	all := expect() // of the registration
	var followers sync.WaitGroup
	for range n {
		followers.Go(func() { follow(b, ctx, calls.Addr().String(), pages.Addr().String(), saw) })
	}
	<-all

	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		<-pause.C // notices do not come in a row
		all := expect()
		began := time.Now()
		incident := fmt.Sprint("inc-", i/2)
		if i%2 == 0 {
			_, err = node.WorkerDecommission(ctx, &api.WorkerDecommissionRequest{Node: "a", Incarnation: "i",
				Notice: &api.Notice{Incident: incident, Kind: "terminate", Source: "ec2", Stance: "drain", Remaining: durationpb.New(time.Hour), Reason: "capacity"}})
		} else {
			_, err = node.WithdrawDecommission(ctx, &api.WithdrawDecommissionRequest{Node: "a", Incarnation: "i", Incident: incident})
		}
		if err != nil {
			b.Fatal(err)
		}
		<-all
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms-worst")
	b.ReportMetric(0, "ns/op")
	cancel()
	running.Wait()
	followers.Wait()
}

func followPage(b *testing.B, ctx context.Context, _, at string, saw func()) {
	config := certs.Dev(certs.Name{Role: certs.RoleApp, Name: "spark"}).Client([]string{"http/1.1"}, certs.Name{Role: certs.RoleCoordinator})
	conn, err := tls.Dial("tcp", at, config)
	if err != nil {
		b.Error(err)
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	fmt.Fprintf(conn, "GET /events?after=0 HTTP/1.1\r\nHost: c\r\n\r\n")
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data: ") {
			saw()
		}
	}
}

func followCalls(b *testing.B, ctx context.Context, at, _ string, saw func()) {
	config := certs.Dev(certs.Name{Role: certs.RoleApp, Name: "spark"}).Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator})
	conn := client.New(client.Config{Addresses: []string{at}, Credentials: credentials.NewTLS(config)})
	defer conn.Close()
	stream, err := api.NewOperatorClient(conn).Events(ctx, &api.EventsRequest{Follow: true})
	if err != nil {
		b.Error(err)
		return
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return
		}
		saw()
	}
}
