package coordinator

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/pipenet"
)

// A coordinator that is back after an hour is found at once, and not after two more minutes of backoff.
func TestColleagueThatIsBackIsFoundAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var there atomic.Bool
		at := pipenet.Listen()
		as := func(name string) *certs.Identity {
			return certs.Dev(certs.Name{Role: certs.RoleCoordinator, Name: name})
		}
		c := &colleagues{identity: as("c1"), conns: map[Peer]*grpc.ClientConn{}, dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if !there.Load() {
				return nil, net.ErrClosed
			}
			return at.Dial(ctx, network, address)
		}}
		defer c.Close()
		server := grpc.NewServer(grpc.Creds(credentials.NewTLS(as("c2").Server([]string{"h2"}, certs.RoleCoordinator))))
		api.RegisterCoordinationServer(server, positioned{})
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(at) }()
		defer func() { server.Stop(); <-ended }()
		answers := func() bool {
			client, err := c.ask(Peer{Name: "c2", Address: "c2:7411"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.GetPosition(t.Context(), &api.GetPositionRequest{})
			return err == nil
		}
		for range 3600 {
			time.Sleep(time.Second)
			if answers() {
				t.Fatal("it answers while it is away")
			}
		}
		there.Store(true)
		time.Sleep(redialMost + redialMost/2)
		answers() // which dials
		time.Sleep(redialMost)
		if !answers() {
			t.Error("it was away for an hour, and is still said to be")
		}
	})
}

type positioned struct {
	api.UnimplementedCoordinationServer
}

func (positioned) GetPosition(context.Context, *api.GetPositionRequest) (*api.Position, error) {
	return &api.Position{Now: timestamppb.Now()}, nil
}

// The offset of a coordinator's clock comes from its own answer, however long others keep the asker waiting.
func TestClockOfOneIsNotMeasuredByAnothersSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := pipenet.Listen()
		as := func(name string) *certs.Identity {
			return certs.Dev(certs.Name{Role: certs.RoleCoordinator, Name: name})
		}
		server := grpc.NewServer(grpc.Creds(credentials.NewTLS(as("c2").Server([]string{"h2"}, certs.RoleCoordinator))))
		api.RegisterCoordinationServer(server, positioned{})
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(at) }()
		defer func() { server.Stop(); <-ended }()
		l, err := openLedger(ledgerConfig{dir: t.TempDir(), own: "c1", peers: peersNamed(3), election: time.Second, log: slog.New(slog.DiscardHandler), streams: newStreams(as("c1"), "c1:1", nowhere)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		mine := &succession{cfg: Config{Name: "c1"}, ledger: l, leases: newLeases(0, nil, t0), identity: as("c1")}
		mine.colleagues = &colleagues{identity: as("c1"), ledger: l, conns: map[Peer]*grpc.ClientConn{}, dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address != "10.0.0.2:7411" { // c3 is cut off
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return at.Dial(ctx, network, address)
		}}
		defer mine.colleagues.Close()
		for _, m := range mine.members(t.Context()) {
			if m.Name == "c2" && (!m.Reached || m.Skew.AsDuration().Abs() > positionPatience/10) {
				t.Errorf("got reached %t, skew %s, want none: all clocks are one here", m.Reached, m.Skew.AsDuration())
			}
		}
	})
}
