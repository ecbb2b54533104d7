package agent

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// settings are those of an agent on this machine without a coordinator.
func settings(t *testing.T) Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "lb") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg := Default()
	cfg.Node.Name = "host-a"
	cfg.Coordinators = []string{"127.0.0.1:1"}
	cfg.Listen = Listen{Peer: "127.0.0.1:0", HTTP: "127.0.0.1:0", Socket: filepath.Join(dir, "agent.sock"), ReadTokenFile: filepath.Join(dir, "token")}
	cfg.DataDir = filepath.Join(dir, "data")
	cfg.TLS.DevInsecure = true
	cfg.Cloud.Provider = "none"
	cfg.Stores = []Store{{Name: "cache", Kind: "cache", Layout: "files", Land: "vault", Paths: []string{filepath.Join(dir, "cache")}}}
	if err := os.WriteFile(cfg.Listen.ReadTokenFile, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func deps(cfg Config) Deps {
	return Deps{Log: slog.New(slog.DiscardHandler), Identity: certs.Dev(cfg.identity()), Version: "test"}
}

// run runs an agent on real sockets until the test ends.
func run(t *testing.T, cfg Config) *Agent {
	t.Helper()
	a, err := New(t.Context(), cfg, deps(cfg))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-over; err != nil {
			t.Errorf("got %v at the end, want nil", err)
		}
	})
	return a
}

func onSocket(t *testing.T, cfg Config) api.LocalClient {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+cfg.Listen.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return api.NewLocalClient(conn)
}

// A directory that the agent has to make may be one whose disk is not mounted: it logs that once.
func TestMakesStores(t *testing.T) {
	cfg := settings(t)
	there := t.TempDir()
	cfg.Stores[0].Paths = append(cfg.Stores[0].Paths, there)
	for _, want := range []int{1, 0} {
		var said bytes.Buffer
		d := deps(cfg)
		d.Log = slog.New(slog.NewTextHandler(&said, nil))
		a, err := New(t.Context(), cfg, d)
		if err != nil {
			t.Fatal(err)
		}
		a.close()
		if got := strings.Count(said.String(), "level=WARN msg=\"a store's directory was not there"); got != want || strings.Contains(said.String(), there) {
			t.Errorf("got %d warnings, want %d of %s alone: %s", got, want, cfg.Stores[0].Paths[0], said.String())
		}
	}
}

// What the command line and the shell trigger call, on a real socket, where the kernel says who calls.
func TestSocketDecommissionsAndCancels(t *testing.T) {
	cfg := settings(t)
	run(t, cfg)
	calls := onSocket(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	for _, r := range []*api.DecommissionSelfRequest{
		{Timeout: durationpb.New(-time.Second)},
		{Timeout: durationpb.New(1000 * 24 * time.Hour)},
		{Reason: strings.Repeat("x", 1001)},
	} {
		if _, err := calls.DecommissionSelf(ctx, r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%.60v: got %v, want it refused", r, err)
		}
	}
	if r, err := calls.Simulate(ctx, &api.SimulateRequest{Kind: "preempt", In: durationpb.New(0)}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a rehearsal that is over as it begins: got %v %v, want it refused", r, err)
	}
	said, err := calls.DecommissionSelf(ctx, &api.DecommissionSelfRequest{Timeout: durationpb.New(time.Hour), Reason: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	if left := said.Remaining.AsDuration(); left > time.Hour || left < 59*time.Minute {
		t.Errorf("got %s remaining, want an hour", left)
	}
	s, err := calls.GetStatus(ctx, &api.GetAgentStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Status.GetNotice(); n.GetIncident() != said.Incident || n.GetKind() != "manual" || n.GetReason() != "a test" {
		t.Errorf("got the notice %v, want %s", n, said.Incident)
	}
	got, err := calls.Cancel(ctx, &api.CancelRequest{Reason: "a mistake"})
	if err != nil || !got.Cancelled || got.Still != "" {
		t.Errorf("got %v %v, want it cancelled", got, err)
	}
	if got, err := calls.Cancel(ctx, &api.CancelRequest{}); err != nil || got.Cancelled {
		t.Errorf("again: got %v %v, want nothing to cancel", got, err)
	}
}

// A second agent on the same socket is refused; the socket of one that was killed is replaced.
func TestSocketOfAnotherAgent(t *testing.T) {
	cfg := settings(t)
	stale, err := net.Listen("unix", cfg.Listen.Socket)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	run(t, cfg)
	info, err := os.Stat(cfg.Listen.Socket)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("got the socket %v %v, want mode 0660", info, err)
	}
	second := settings(t)
	second.Listen.Socket = cfg.Listen.Socket
	if _, err := New(t.Context(), second, deps(second)); err == nil || !strings.Contains(err.Error(), "another daemon's") {
		t.Errorf("got %v, want it to say whose the socket is", err)
	}
}

// Blocks are other people's data: the loopback page gives them to bearers of the token alone.
func TestPageAsksForTheToken(t *testing.T) {
	cfg := settings(t)
	a := run(t, cfg)
	if err := os.WriteFile(filepath.Join(cfg.Stores[0].Paths[0], "x"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		path, token string
		want        int
	}{
		{"/healthz", "", 200},
		{"/metrics", "", 200},
		{"/blocks/cache/-/x", "", 401},
		{"/blocks/cache/-/x", "Bearer 0123456789abcde", 401},
		{"/blocks/cache/-/x", "0123456789abcdef", 401},
		{"/blocks/cache/-/x", "Basic 0123456789abcdef", 401},
		{"/blocks/cache/-/x", "Bearer 0123456789abcdef", 200},
		{"/blocks/cache/-/x", "bearer 0123456789abcdef", 200},
		{"/", "Bearer 0123456789abcdef", 404},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.at.http.Addr().String()+row.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if row.token != "" {
			req.Header.Set("Authorization", row.token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != row.want {
			t.Errorf("%s with %q: got %d %s, want %d", row.path, row.token, resp.StatusCode, body, row.want)
		}
		if how := resp.Header.Get("WWW-Authenticate"); (how == "Bearer") != (row.want == 401) {
			t.Errorf("%s with %q: it says to authenticate by %q", row.path, row.token, how)
		}
		if strings.HasPrefix(row.path, "/blocks/") && (string(body) == "content") != (row.want == 200) {
			t.Errorf("%s with %q: got %q", row.path, row.token, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// An id that is none is refused at every door, and not made another block's, whose bytes a script would take for those that it asked for.
func TestWhatIsNoIDIsNotMadeOne(t *testing.T) {
	cfg := settings(t)
	a := run(t, cfg)
	if err := os.WriteFile(filepath.Join(cfg.Stores[0].Paths[0], "x"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, door := range map[string]http.Handler{"peer": a.at.blocks, "http": a.at.page, "socket": a.at.calls.Handler} {
		for path, want := range map[string]int{"/blocks/cache/-/x": 200, "/blocks/cache/-/y/../x": 400, "/blocks/cache//-/x": 400, "/blocks/cache//x": 400} {
			req, got := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
			req.Header.Set("Authorization", "Bearer 0123456789abcdef")
			if door.ServeHTTP(got, req); got.Code != want {
				t.Errorf("%s %s: got %d %s, want %d", name, path, got.Code, got.Body, want)
			}
		}
	}
}

// A token that can be guessed, or a missing token file, is refused with an explanation before the agent says that it is
// ready.
func TestPageRefusesABadToken(t *testing.T) {
	cfg := settings(t)
	if err := os.WriteFile(cfg.Listen.ReadTokenFile, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), cfg, deps(cfg)); err == nil || !strings.Contains(err.Error(), "at least 16") {
		t.Errorf("got %v, want the token refused", err)
	}
	if err := os.Remove(cfg.Listen.ReadTokenFile); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), cfg, deps(cfg)); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "read_token_file") {
		t.Errorf("got %v, want it to say that the token is not there", err)
	}
}

// Only nodes may send blocks. Operators and apps may read, and other roles do not get in.
func TestPeerAddressTellsRolesApart(t *testing.T) {
	a := run(t, settings(t))
	reach := func(role certs.Role, protocol string) (net.Conn, error) {
		id := certs.Dev(certs.Name{Role: role, Name: "somebody"})
		conn, err := tls.Dial("tcp", a.at.peer.Addr().String(), id.Client([]string{protocol}, certs.Name{Role: certs.RoleNode, Name: "host-a"}))
		if err == nil {
			t.Cleanup(func() { conn.Close() })
		}
		return conn, err
	}
	for _, row := range []struct {
		role  certs.Role
		sends bool
		reads bool
	}{
		{certs.RoleNode, true, true},
		{certs.RoleOperator, false, true},
		{certs.RoleApp, false, true},
		{certs.RoleCoordinator, false, false},
	} {
		if got := answers(t, reach, row.role); got != row.reads {
			t.Errorf("%s reads: got %v, want %v", row.role, got, row.reads)
		}
		forgets := 403
		if row.sends {
			forgets = 404 // it is not there
		}
		if got := forgetting(t, reach, row.role); row.reads && got != forgets {
			t.Errorf("%s has a copy removed: got %d, want %d", row.role, got, forgets)
		}
		conn, err := reach(row.role, wire.Protocol)
		if err != nil {
			if row.sends {
				t.Errorf("%s: %v", row.role, err)
			}
			continue
		}
		// No byte was sent yet: the stream of a node is waited for, that of another role is cut.
		patience := time.Minute
		if row.sends {
			patience = 200 * time.Millisecond // nothing should come: do not wait longer
		}
		conn.SetReadDeadline(time.Now().Add(patience))
		_, err = conn.Read(make([]byte, 1))
		if waits := errors.Is(err, os.ErrDeadlineExceeded); waits != row.sends {
			t.Errorf("%s sends: got %v, want waited for: %v", row.role, err, row.sends)
		}
	}
}

// answers reports whether a reader of that role is answered. With TLS 1.3 a client learns that it is refused only from the
// first answer after the handshake.
func answers(t *testing.T, reach func(certs.Role, string) (net.Conn, error), role certs.Role) bool {
	t.Helper()
	conn, err := reach(role, httpProtocol)
	if err != nil {
		return false
	}
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return false
	}
	n, _ := conn.Read(make([]byte, 1))
	return n == 1
}

// forgetting is the status that a caller of that role gets for the removal of a copy.
func forgetting(t *testing.T, reach func(certs.Role, string) (net.Conn, error), role certs.Role) (status int) {
	t.Helper()
	conn, err := reach(role, httpProtocol)
	if err != nil {
		return 0
	}
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = io.WriteString(conn, "DELETE /blocks/cache/-/x HTTP/1.1\r\nHost: a\r\nIf-Match: \"x\"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0 // not let in
	}
	resp.Body.Close()
	return resp.StatusCode
}
