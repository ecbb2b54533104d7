package coordinator

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/pipenet"
)

// town is a coordinator in a bubble that can be stopped and started on the same directory.
type town struct {
	*testing.T
	cfg    Config
	stop   func()
	web    *http.Client // for webhooks
	pki    string       // directory of a CA of its own; empty: certs.Dev
	verify Verifier
	log    *slog.Logger // nil: the test's

	mu   sync.Mutex // clients dial while the coordinator restarts
	grpc *pipenet.Listener
	http *pipenet.Listener
}

func (v *town) dial(ctx context.Context) (net.Conn, error) {
	v.mu.Lock()
	calls := v.grpc
	v.mu.Unlock()
	return calls.Dial(ctx, "", "")
}

func (v *town) dialPages(ctx context.Context) (net.Conn, error) {
	v.mu.Lock()
	pages := v.http
	v.mu.Unlock()
	return pages.Dial(ctx, "", "")
}

func inTown(t *testing.T, tell func(*town)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := Default()
		cfg.Name, cfg.DataDir = "c", t.TempDir()
		v := &town{T: t, cfg: cfg}
		v.start()
		defer func() { v.stop() }()
		tell(v)
	})
}

// opened returns the fleet of a coordinator without its servers, which leads and has not taken over yet.
func opened(t testing.TB, cfg Config) *fleet {
	t.Helper()
	f, err := openFleet(cfg, nil, Deps{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.ledger.awaitLead(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// leading returns the fleet of a coordinator on its own, which has taken over.
func leading(t testing.TB) *fleet {
	t.Helper()
	cfg := Default()
	cfg.Name, cfg.DataDir = "c", t.TempDir()
	f := opened(t, cfg)
	if err := f.takeOver(t.Context(), f.ledger.term()); err != nil {
		t.Fatal(err)
	}
	return f
}

func (v *town) start() {
	v.Helper()
	calls, pages := pipenet.Listen(), pipenet.Listen()
	v.mu.Lock()
	v.grpc, v.http = calls, pages
	v.mu.Unlock()
	ready := make(chan struct{})
	log := cmp.Or(v.log, slog.New(slog.NewTextHandler(v.Output(), nil)))
	c, err := New(v.cfg, Deps{
		Log: log, Identity: v.identity(certs.RoleCoordinator, "c"),
		GRPC: calls, HTTP: pages, Web: v.web, Verify: v.verify, Version: "test", Ready: func() { close(ready) },
	})
	if err != nil {
		v.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	select {
	case <-ready:
	case err := <-ended:
		v.Fatalf("the coordinator ended at its start: %v", err)
	}
	v.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			v.Errorf("run: %v", err)
		}
		v.stop = func() {}
	}
}

func (v *town) restart() {
	v.stop()
	v.start()
}

func (v *town) identity(role certs.Role, name string) *certs.Identity {
	v.Helper()
	n := certs.Name{Role: role, Name: name}
	if v.pki == "" {
		return certs.Dev(n)
	}
	cert, key, err := certs.Issue(v.pki, n, nil, nil)
	if err != nil {
		v.Fatal(err)
	}
	id, err := certs.Load(filepath.Join(v.pki, "ca.pem"), cert, key)
	if err != nil {
		v.Fatal(err)
	}
	return id
}

func (v *town) conn(role certs.Role, name string) *grpc.ClientConn {
	v.Helper()
	tls := v.identity(role, name).Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator})
	conn, err := grpc.NewClient("passthrough:///c", grpc.WithTransportCredentials(credentials.NewTLS(tls)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return v.dial(ctx) }),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		v.Fatal(err)
	}
	v.Cleanup(func() { conn.Close() })
	return conn
}

func (v *town) operator() api.OperatorClient {
	return api.NewOperatorClient(v.conn(certs.RoleOperator, "eve"))
}

// agent is a node that does what it is told by the test.
type agent struct {
	*town
	api.MembershipClient
	name, incarnation string
	status            *api.Status
	version           uint64
	sequence          uint64    // of its reports
	finished          time.Time // when its drain ended, by its manifest; zero: it does not say
}

func (v *town) agent(name string) *agent {
	v.Helper()
	return &agent{
		town: v, name: name, incarnation: "inc-of-" + name, MembershipClient: api.NewMembershipClient(v.conn(certs.RoleNode, name)),
		status: &api.Status{RoomBytes: 1 << 30, Stores: []*api.StoreInfo{{Name: "spark"}}},
	}
}

func (a *agent) register() {
	a.Helper()
	if _, err := a.Register(a.Context(), &api.RegisterRequest{Node: a.name, Incarnation: a.incarnation, PeerAddress: a.name + ":7412", Status: a.status}); err != nil {
		a.Fatalf("register %s: %v", a.name, err)
	}
}

// beat beats once, and registers when told to.
func (a *agent) beat() *api.HeartbeatReply {
	a.Helper()
	for range 2 {
		reply, err := a.Heartbeat(a.Context(), &api.HeartbeatRequest{Node: a.name, Incarnation: a.incarnation, Status: a.status, PeersVersion: a.version})
		if err != nil {
			a.Fatalf("heartbeat of %s: %v", a.name, err)
		}
		if !reply.Register {
			return reply
		}
		a.register()
	}
	a.Fatalf("node %s is told to register right after it did", a.name)
	return nil
}

// live beats every second for a while.
func (a *agent) live(seconds int) (last *api.HeartbeatReply) {
	a.Helper()
	for range seconds {
		time.Sleep(time.Second)
		last = a.beat()
	}
	return last
}

func (a *agent) notice(incident string, left time.Duration) {
	a.status.Notice = &api.Notice{Incident: incident, Kind: "terminate", Source: "ec2", Stance: "drain", Remaining: durationpb.New(left)}
}

func (a *agent) announce() {
	a.Helper()
	if _, err := a.WorkerDecommission(a.Context(), &api.WorkerDecommissionRequest{Node: a.name, Incarnation: a.incarnation, Notice: a.status.Notice}); err != nil {
		a.Fatalf("announce %s: %v", a.name, err)
	}
}

func (a *agent) report(full bool, ids ...string) {
	a.Helper()
	stream, err := a.ReportBlocks(a.Context())
	if err != nil {
		a.Fatal(err)
	}
	send := func(r *api.ReportBlocksRequest) {
		r.Node, r.Incarnation = a.name, a.incarnation
		if err := stream.Send(r); err != nil && err != io.EOF {
			a.Fatal(err)
		}
	}
	send(&api.ReportBlocksRequest{Full: full, Sequence: a.sequence})
	for _, id := range ids {
		send(&api.ReportBlocksRequest{Landed: []*api.HeldBlock{{Id: id, Bytes: 7, From: "gone"}}})
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		a.Fatal(err)
	}
}

func (a *agent) goodbye(incident string, entries ...*api.ManifestEntry) {
	a.Helper()
	s := &api.ManifestSummary{Node: a.name, Incarnation: a.incarnation, Incident: incident, Kind: "terminate", Source: cmp.Or(a.status.GetNotice().GetSource(), "ec2"),
		Moved: new(api.Count), Lost: new(api.Count), Skipped: new(api.Count)}
	if !a.finished.IsZero() {
		s.FinishedAt = timestamppb.New(a.finished)
	}
	for _, e := range entries {
		switch e.Outcome {
		case "moved":
			s.Moved.Blocks++
		case "lost":
			s.Lost.Blocks++
		default:
			s.Skipped.Blocks++
		}
	}
	stream, err := a.Goodbye(a.Context())
	if err != nil {
		a.Fatal(err)
	}
	for _, r := range []*api.GoodbyeRequest{{Summary: s}, {Entries: entries}} {
		if err := stream.Send(r); err != nil && err != io.EOF {
			a.Fatal(err)
		}
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		a.Fatalf("goodbye of %s: %v", a.name, err)
	}
}

// node reads one node as an operator sees it.
func (v *town) seen(name string) *api.Node {
	v.Helper()
	n, err := v.operator().GetNode(v.Context(), &api.GetNodeRequest{Node: name})
	if err != nil {
		v.Fatal(err)
	}
	return n
}

// manifestFiles returns the names of all files of manifests.
func (v *town) manifestFiles() (names []string) {
	v.Helper()
	files, err := os.ReadDir(filepath.Join(v.cfg.DataDir, "manifests"))
	if err != nil {
		v.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

func (v *town) is(name string, want registry.State) {
	v.Helper()
	if n := v.seen(name); n.State != string(want) {
		v.Errorf("node %s: got %s, want %s", name, n.State, want)
	}
}

func (v *town) order(timeout time.Duration, names ...string) {
	v.Helper()
	r := &api.DecommissionRequest{Nodes: names, Reason: "kernel", Timeout: durationpb.New(timeout)}
	if _, err := v.operator().Decommission(v.Context(), r); err != nil {
		v.Fatal(err)
	}
}

func (v *town) located(id, state string, holders ...string) {
	v.Helper()
	r, err := v.operator().Locate(v.Context(), &api.LocateRequest{Id: id})
	if err != nil {
		v.Fatal(err)
	}
	var got []string
	for _, h := range r.Holders {
		got = append(got, h.Node)
		if h.Address != h.Node+":7412" {
			v.Errorf("holder %s: got address %q", h.Node, h.Address)
		}
	}
	if r.State != state || strings.Join(got, " ") != strings.Join(holders, " ") {
		v.Errorf("locate %s: got %s at %v, want %s at %v", id, r.State, got, state, holders)
	}
}

func (v *town) refused(err error, want codes.Code, words string) {
	v.Helper()
	if status.Code(err) != want || !strings.Contains(status.Convert(err).Message(), words) {
		v.Errorf("got %v, want %s with %q", err, want, words)
	}
}

// get makes an HTTP request, with a certificate of that name or, if as is nil, without one.
func (v *town) get(path string, as *certs.Name) (int, string) {
	v.Helper()
	return v.ask(http.MethodGet, path, as, nil)
}

// ask makes an HTTP request with any method and header; as is as in get.
func (v *town) ask(method, path string, as *certs.Name, header http.Header) (int, string) {
	v.Helper()
	return v.send(method, path, as, header, nil)
}

// send is ask with a body.
func (v *town) send(method, path string, as *certs.Name, header http.Header, body io.Reader) (int, string) {
	v.Helper()
	who := certs.Dev(certs.Name{Role: certs.RoleOperator, Name: "eve"})
	if as != nil {
		who = certs.Dev(*as)
	}
	tls := who.Client(nil, certs.Name{Role: certs.RoleCoordinator})
	if as == nil {
		tls.Certificates, tls.GetClientCertificate = nil, nil
	}
	transport := &http.Transport{TLSClientConfig: tls, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return v.dialPages(ctx) }}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(v.Context(), method, "https://c"+path, body)
	if err != nil {
		v.Fatal(err)
	}
	r.Header = header
	reply, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		v.Fatal(err)
	}
	defer reply.Body.Close()
	said, err := io.ReadAll(reply.Body)
	if err != nil {
		v.Fatal(err)
	}
	return reply.StatusCode, string(said)
}
