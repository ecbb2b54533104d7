package client

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

// A coordinator that is cut off refuses nothing: it says nothing. One call's time is lost to it, and not the next one's.
func TestSilentCoordinatorCostsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCity(t, "b:1")
		c.leads = "b:1"
		conn := New(Config{
			Addresses: []string{"a:1", "b:1"}, Credentials: insecure.NewCredentials(),
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if address != "a:1" {
					return c.dial(ctx, network, address)
				}
				near, far := net.Pipe()
				t.Cleanup(func() { far.Close() })
				return near, nil
			},
		})
		t.Cleanup(func() { conn.Close() })
		for _, want := range []codes.Code{codes.DeadlineExceeded, codes.OK} {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			_, err := api.NewOperatorClient(conn).GetNode(ctx, &api.GetNodeRequest{})
			cancel()
			if got := status.Code(err); got != want {
				t.Errorf("got %s (%v), want %s", got, err, want)
			}
		}
	})
}
