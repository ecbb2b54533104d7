package localsock

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lb") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestListen(t *testing.T) {
	path := filepath.Join(shortDir(t), "run", "a.sock")
	first, err := Listen(t.Context(), Network{}, path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("got mode %v %v, want it open to its group and to no other", info.Mode(), err)
	}
	if _, err := Listen(t.Context(), Network{}, path); err == nil || !strings.Contains(err.Error(), "another daemon's") {
		t.Errorf("got %v, want it refused: somebody answers there", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	first.Close() // as a killed daemon leaves it
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Fatal("the socket is gone: there is nothing to replace")
	}
	second, err := Listen(t.Context(), Network{}, path)
	if err != nil {
		t.Fatalf("replace what a killed daemon left: %v", err)
	}
	second.Close()
}

// A daemon that has stopped answering, with callers waiting, is still there: its socket is not taken from it.
func TestListenWhereNobodyIsLetIn(t *testing.T) {
	path := filepath.Join(shortDir(t), "a.sock")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for range 4 { // the first of them waits, and is not answered
		conn, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		defer conn.Close()
	}
	if l, err := Listen(t.Context(), Network{}, path); err == nil {
		l.Close()
		t.Error("it listens, want it refused: somebody is there")
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the socket was taken away: %v", err)
	}
}

// A mistyped path must not cost anybody a file.
func TestListenReplacesNoFile(t *testing.T) {
	path := filepath.Join(shortDir(t), "agent.yaml")
	if err := os.WriteFile(path, []byte("node: {}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := Listen(t.Context(), Network{}, path); err == nil {
		l.Close()
		t.Error("it listens, want it refused: a file that is no socket is there")
	}
	if b, err := os.ReadFile(path); string(b) != "node: {}" {
		t.Errorf("the file holds %q (%v), want it left alone", b, err)
	}
}

// A daemon that is told to stop before it has started does not remove another daemon's socket.
func TestListenThatIsCutShortReplacesNothing(t *testing.T) {
	path := filepath.Join(shortDir(t), "a.sock")
	first, err := Listen(t.Context(), Network{}, path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if l, err := Listen(ctx, Network{}, path); err == nil {
		l.Close()
		t.Error("it listens, want it refused: nobody has found out whether somebody answers there")
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the first daemon's socket: %v", err)
	}
	conn.Close()
}

type echo struct{ api.UnimplementedLocalServer }

func (echo) GetStatus(context.Context, *api.GetAgentStatusRequest) (*api.AgentStatus, error) {
	return &api.AgentStatus{Node: "host-a"}, nil
}

func (echo) Cancel(context.Context, *api.CancelRequest) (*api.CancelReply, error) {
	return &api.CancelReply{Cancelled: true}, nil
}

// serve answers on a listener until the test ends.
func serve(t *testing.T, l net.Listener) {
	calls := grpc.NewServer(grpc.UnaryInterceptor(Gate(slog.New(slog.DiscardHandler), api.Local_Cancel_FullMethodName)))
	api.RegisterLocalServer(calls, echo{})
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a page") })
	s := Server(calls, page, slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-ended })
}

func dialing(t *testing.T, network, address string) api.LocalClient {
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return api.NewLocalClient(conn)
}

func TestServerSpeaksBoth(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	l, err := Listen(t.Context(), Network{}, path)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	calls := dialing(t, "unix", path)
	if s, err := calls.GetStatus(ctx, &api.GetAgentStatusRequest{}); err != nil || s.Node != "host-a" {
		t.Errorf("got %v %v, want an answer to gRPC", s, err)
	}
	if r, err := calls.Cancel(ctx, &api.CancelRequest{}); err != nil || !r.Cancelled {
		t.Errorf("got %v %v, want our own user to be let in", r, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	resp, err := client.Get("http://here/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "a page" {
		t.Errorf("got %q %v, want the page", b, err)
	}
}

// A caller on a connection for which the kernel gives no user may look, and change nothing.
func TestGateKeepsStrangersOut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	calls := dialing(t, "tcp", l.Addr().String())
	if _, err := calls.GetStatus(ctx, &api.GetAgentStatusRequest{}); err != nil {
		t.Errorf("got %v, want a look to be allowed", err)
	}
	if _, err := calls.Cancel(ctx, &api.CancelRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("got %v, want it refused", err)
	}
}

func TestGateAsksForTheUser(t *testing.T) {
	gate := Gate(slog.New(slog.DiscardHandler), "/change")
	next := func(context.Context, any) (any, error) { return "done", nil }
	for who, want := range map[caller]codes.Code{
		{}:                                       codes.PermissionDenied,
		{known: true, uid: 0}:                    codes.OK,
		{known: true, uid: uint32(os.Geteuid())}: codes.OK,
		{known: true, uid: 65534}:                codes.PermissionDenied,
	} {
		ctx := context.WithValue(t.Context(), callerKey{}, who)
		if _, err := gate(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/change"}, next); status.Code(err) != want {
			t.Errorf("%+v: got %v, want %s", who, err, want)
		}
		if _, err := gate(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/look"}, next); err != nil {
			t.Errorf("%+v: got %v, want a look to be allowed", who, err)
		}
	}
}

func TestDeadlineIsRefusedAsPeopleWriteTimes(t *testing.T) {
	_, err := Deadline("in", durationpb.New(-5*time.Second), "")
	if want := "in -5s: want 0 to 8784h, or none"; status.Convert(err).Message() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}
