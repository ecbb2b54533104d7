package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/pipenet"
	"github.com/lifeboat/lifeboat/preemption"
)

// The line in systemctl says at a glance whether the node is going, and how far it is.
func TestHeadline(t *testing.T) {
	for want, s := range map[string]*api.Status{
		"no notice; 5 blocks held for others":                                    {HeldBlocks: 5},
		"under notice: rebalance from ec2; 0 blocks held for others":             {Notice: &api.Notice{Kind: "rebalance", Source: "ec2"}},
		"under notice: terminate from ec2, 1m58s left; 0 blocks held for others": {Notice: &api.Notice{Kind: "terminate", Source: "ec2", Remaining: durationpb.New(118*time.Second + 3)}},
		"under notice: stop from ec2, 0s left; sending: 3 of 9 blocks moved, 1 lost; 2 blocks held for others": {
			Notice: &api.Notice{Kind: "stop", Source: "ec2", Remaining: durationpb.New(-time.Second)}, HeldBlocks: 2,
			Drain: &api.DrainProgress{Phase: "sending", BlocksMoved: 3, BlocksTotal: 9, BlocksLost: 1},
		},
	} {
		if got := headline(s); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// Where no manager listens, as in a container, nothing is put together for it.
func TestNoManagerListens(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := new(Agent).tellManager(t.Context()); err != nil { // which has nothing to tell
		t.Error(err)
	}
}

// A service manager that takes no more messages does not keep an agent that starts from hearing of the machine's end.
func TestDeafManagerHoldsUpNoNotice(t *testing.T) {
	dir, err := os.MkdirTemp("", "notify") // t.TempDir may be too long for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, "s")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	full, err := net.Dial("unixgram", at)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for err == nil {
		full.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = full.Write([]byte("STATUS=another unit's"))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", at)

	cfg := settings(t)
	d := deps(cfg)
	d.Listen = func(string, string) (net.Listener, error) { return pipenet.Listen(), nil }
	d.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody is there") }
	a, err := New(t.Context(), cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- a.Run(ctx) }()
	limited, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := a.DecommissionSelf(limited, preemption.SourceManual, time.Time{}, "a test"); err != nil {
		t.Errorf("the notice is not heard: %v", err)
	}
	manager.Close() // what hangs at it ends
	stop()
	if err := <-over; err != nil {
		t.Error(err)
	}
}
