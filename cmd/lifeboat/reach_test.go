package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/pipenet"
)

// Verbs do not wait for ever for an agent that answered and then hangs (kill -STOP, a machine out of memory), even for calls without a
// timeout.
func TestAgentThatStopsIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &link{whom: "the agent"}
		if err := l.connect(func(context.Context, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				defer there.Close()
				f := http2.NewFramer(there, nil)
				go io.Copy(io.Discard, there) // it is the kernel that takes what comes
				if f.WriteSettings() == nil { // it was well
					<-t.Context().Done() // and is no more
				}
			}()
			return here, nil
		}); err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := api.NewLocalClient(l.conn).Simulate(ctx, &api.SimulateRequest{Kind: "terminate"})
		if err = l.rpcError("simulate terminate", err); !strings.HasSuffix(err.Error(), errHangs.Error()) {
			t.Errorf("got %v, want %v", err, errHangs)
		}
		if took := time.Since(began); took > 2*(pingAfter+pingPatience) {
			t.Errorf("it took %s", took)
		}
	})
}

// Those who watch an agent, or wait for it, see it soon after it is back, however long it was away.
func TestAgentThatIsBackIsFoundSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent, back := pipenet.Listen(), time.Now().Add(10*time.Minute)
		g := grpc.NewServer()
		api.RegisterLocalServer(g, &present{})
		background(t.Cleanup, g.Stop, func() { _ = g.Serve(agent) })
		l := &link{whom: "the agent"}
		if err := l.connect(func(ctx context.Context, _ string) (net.Conn, error) {
			if time.Now().Before(back) {
				return nil, syscall.ENOENT
			}
			return agent.Dial(ctx, "", "")
		}); err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for {
			_, err := api.NewLocalClient(l.conn).GetStatus(t.Context(), &api.GetAgentStatusRequest{})
			late := time.Since(back)
			if err == nil {
				return
			}
			if late > 3*time.Second {
				t.Fatalf("%s after it is back: %v", late, err)
			}
			time.Sleep(show.WatchPace)
		}
	})
}

// present is an agent that answers only GetStatus.
type present struct{ api.UnimplementedLocalServer }

func (*present) GetStatus(context.Context, *api.GetAgentStatusRequest) (*api.AgentStatus, error) {
	return &api.AgentStatus{}, nil
}

// A command that is offered asks the same coordinators when it is copied into a shell.
func TestWhatIsOfferedCanBeCopied(t *testing.T) {
	r := &reach{coordinator: "10.0.0.1, [fd00::2]:7411", tlsDir: "/home/o'neil/my pki", socket: "/run/lifeboat/agent.sock"}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '<%s>' `+r.againFleet()+r.again()).Output()
	if got, want := string(out), "<--coordinator><10.0.0.1, [fd00::2]:7411><--tls-dir></home/o'neil/my pki><--socket></run/lifeboat/agent.sock>"; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

// The error for a mistyped host name does not send people to check whether the machine runs.
func TestNameThatIsNotKnown(t *testing.T) {
	l := &link{lastErr: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "cordinator", IsNotFound: true}}}
	if got, want := l.dialError().Error(), "no host of the name cordinator is known: is cordinator its name?"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Of several coordinators of which none answers, each for a reason of its own, the error is not that of the last one that was dialled.
func TestReasonsOfSeveralCoordinators(t *testing.T) {
	l := &link{whom: "coordinator a:1, b:1", lastErr: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}}
	const each = "a:1: it refuses this certificate (bad certificate); b:1: connection refused"
	if got, want := l.rpcError("list nodes", status.Error(codes.Unavailable, each)).Error(), "list nodes: coordinator a:1, b:1: "+each; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Only its holder can renew an operator's certificate: each command warns of its end once, from two weeks ahead.
func TestOperatorHearsThatTheCertificateEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "pki")
		if err := certs.InitCA(dir); err != nil {
			t.Fatal(err)
		}
		hears := func() string {
			t.Helper()
			var stdout, stderr bytes.Buffer
			cmd := &cobra.Command{}
			cmd.SetOut(&stdout)
			cmd.SetErr(&stderr)
			r := &reach{cmd: cmd, tlsDir: dir}
			for range 2 {
				if _, err := r.identity(); err != nil {
					t.Fatal(err)
				}
			}
			if stdout.Len() > 0 {
				t.Errorf("programs read %q", &stdout)
			}
			return stderr.String()
		}
		time.Sleep(350 * 24 * time.Hour)
		if said := hears(); said != "" {
			t.Errorf("15 days before its end: got %q", said)
		}
		time.Sleep(2 * 24 * time.Hour)
		if said := hears(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "ends in 13d") || !strings.Contains(said, "lifeboat tls issue --dir "+dir+" --operator operator") {
			t.Errorf("13 days before its end: got %q", said)
		}
	})
}
