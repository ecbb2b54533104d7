package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

// fleet is a pretend coordinator, agent and two peers that answer what files in a directory say:
//
//	nodes.json, status.json, locate.json, blocks.json, manifest.json, events.json   the coordinator
//	agent.json, simulate.json, and the same blocks.json and manifest.json          the agent on its socket
//	NODE/ID                                                                        a block at a peer, or "agent"
//	NODE/ID.status                                                                 a status answered instead
//	NODE/ID.from                                                                   where the block is brought from for a reader
//	apps.json, maintenance.json                                                    the coordinator
//	asked.json                                                                     written: the last change asked for
type fleet struct {
	api.UnimplementedOperatorServer
	dir         string
	tls         string
	coordinator string
	socket      string
	peers       map[string]string // address by node
}

// startFleet makes a PKI and starts everybody, with well-known identities when dev.
func startFleet(dir string, dev bool, cleanup func(func())) (*fleet, error) {
	f := &fleet{dir: dir, tls: filepath.Join(dir, "tls"), peers: map[string]string{}}
	if err := certs.InitCA(f.tls); err != nil {
		return nil, err
	}
	identity := func(n certs.Name) (*certs.Identity, error) {
		if dev {
			return certs.Dev(n), nil
		}
		cert, key, err := certs.Issue(f.tls, n, nil, nil)
		if err != nil {
			return nil, err
		}
		return certs.Load(filepath.Join(f.tls, "ca.pem"), cert, key)
	}
	var err error
	if f.coordinator, err = f.startCoordinator(identity, cleanup); err != nil {
		return nil, err
	}
	for _, name := range []string{"host-b", "host-c"} {
		if f.peers[name], err = f.startPeer(name, identity, cleanup); err != nil {
			return nil, err
		}
	}
	f.socket, err = f.startAgent(cleanup)
	return f, err
}

type identities func(certs.Name) (*certs.Identity, error)

func (f *fleet) startCoordinator(identity identities, cleanup func(func())) (string, error) {
	id, err := identity(certs.Name{Role: certs.RoleCoordinator, Name: "c1"})
	if err != nil {
		return "", err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(id.Server([]string{"h2"}, certs.RoleOperator))))
	api.RegisterOperatorServer(s, f)
	background(cleanup, s.Stop, func() { _ = s.Serve(ln) })
	return ln.Addr().String(), nil
}

func (f *fleet) startPeer(name string, identity identities, cleanup func(func())) (string, error) {
	id, err := identity(certs.Name{Role: certs.RoleNode, Name: name})
	if err != nil {
		return "", err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: f.blocks(name), TLSConfig: id.Server([]string{"http/1.1"}, certs.RoleOperator)}
	background(cleanup, func() { s.Close() }, func() { _ = s.ServeTLS(ln, "", "") })
	return ln.Addr().String(), nil
}

// startAgent serves gRPC and HTTP on one socket. Its path is short, for it has 108 bytes at most (unix(7)).
func (f *fleet) startAgent(cleanup func(func())) (string, error) {
	short, err := os.MkdirTemp("", "lb")
	if err != nil {
		return "", err
	}
	cleanup(func() { os.RemoveAll(short) })
	socket := filepath.Join(short, "agent.sock")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return "", err
	}
	g := grpc.NewServer()
	api.RegisterLocalServer(g, &fakeAgent{fleet: f})
	web := f.blocks("agent")
	s := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			g.ServeHTTP(w, r)
			return
		}
		web.ServeHTTP(w, r)
	})}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	background(cleanup, func() { s.Close() }, func() { _ = s.Serve(ln) })
	return socket, nil
}

// background runs serve until cleanup, which stops it and waits. serve's error only says that it was stopped.
func background(cleanup func(func()), stop, serve func()) {
	var wg sync.WaitGroup
	wg.Go(serve)
	cleanup(func() {
		stop()
		wg.Wait()
	})
}

func newFleet(t *testing.T, dev bool) *fleet {
	f, err := startFleet(t.TempDir(), dev, t.Cleanup)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fleet) put(t *testing.T, file, content string) {
	t.Helper()
	file = filepath.Join(f.dir, file)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// lifeboat runs a verb in this process.
func lifeboat(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// blocks serves a directory as an agent serves blocks.
func (f *fleet) blocks(node string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, ok := strings.CutPrefix(r.URL.Path, "/blocks/")
		if !ok {
			http.NotFound(w, r)
			return
		}
		file := filepath.Join(f.dir, node, id)
		if text, err := os.ReadFile(file + ".status"); err == nil {
			code, rest, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
			n, err := strconv.Atoi(code)
			if err != nil {
				panic(err)
			}
			for name, address := range f.peers {
				rest = strings.ReplaceAll(rest, name, address)
			}
			switch n {
			case http.StatusTemporaryRedirect:
				w.Header().Set("Location", rest)
			case http.StatusGone:
				w.Header().Set("Lifeboat-Why", rest)
			case http.StatusServiceUnavailable:
				w.Header().Set("Retry-After", "1")
				_ = os.Remove(file + ".status") // in flight once
			}
			w.WriteHeader(n)
			if n == http.StatusMultipleChoices {
				fmt.Fprint(w, rest)
			}
			return
		}
		if from, err := os.ReadFile(file + ".from"); err == nil {
			if r.Header.Get("Lifeboat-Hop") != "" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Lifeboat-Node", strings.TrimSpace(string(from)))
		}
		http.ServeFile(w, r, file)
	})
}

func (f *fleet) read(file string, into proto.Message) error {
	data, err := os.ReadFile(filepath.Join(f.dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return status.Error(codes.NotFound, "no "+strings.TrimSuffix(file, ".json"))
	} else if err != nil {
		return err
	}
	return protojson.Unmarshal(data, into)
}

// asked writes the request to asked.json, compacted: protojson's spacing is random on purpose.
func (f *fleet) asked(m proto.Message) error {
	data, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		return err
	}
	b.WriteString("\n")
	return os.WriteFile(filepath.Join(f.dir, "asked.json"), b.Bytes(), 0o644)
}

func (f *fleet) ListNodes(context.Context, *api.ListNodesRequest) (*api.ListNodesReply, error) {
	var r api.ListNodesReply
	return &r, f.read("nodes.json", &r)
}

func (f *fleet) ListApps(_ *api.ListAppsRequest, s grpc.ServerStreamingServer[api.ListAppsReply]) error {
	var r api.ListAppsReply
	if err := f.read("apps.json", &r); err != nil {
		return err
	}
	return s.Send(&r)
}

func (f *fleet) BeatApp(_ context.Context, r *api.BeatAppRequest) (*api.BeatAppReply, error) {
	return &api.BeatAppReply{}, f.asked(r)
}

func (f *fleet) EndApps(_ context.Context, r *api.EndAppsRequest) (*api.EndAppsReply, error) {
	var reply api.EndAppsReply
	return &reply, errors.Join(f.asked(r), f.read("apps.json", &reply))
}

func (f *fleet) GetNode(ctx context.Context, req *api.GetNodeRequest) (*api.Node, error) {
	nodes, err := f.named([]string{req.GetNode()})
	if err != nil {
		return nil, err
	}
	return nodes[0], nil
}

func (f *fleet) named(names []string) ([]*api.Node, error) {
	var all api.ListNodesReply
	if err := f.read("nodes.json", &all); err != nil {
		return nil, err
	}
	var out []*api.Node
	for _, name := range names {
		for _, n := range all.GetNodes() {
			if n.GetName() == name {
				out = append(out, n)
			}
		}
	}
	if len(out) < len(names) {
		return nil, status.Errorf(codes.NotFound, "no such node among %q", names)
	}
	return out, nil
}

func (f *fleet) Decommission(_ context.Context, req *api.DecommissionRequest) (*api.DecommissionReply, error) {
	nodes, err := f.named(req.GetNodes())
	if err != nil {
		return nil, err
	}
	return &api.DecommissionReply{Nodes: nodes}, f.asked(req)
}

func (f *fleet) Recommission(_ context.Context, req *api.RecommissionRequest) (*api.RecommissionReply, error) {
	nodes, err := f.named(req.GetNodes())
	if err != nil {
		return nil, err
	}
	return &api.RecommissionReply{Nodes: nodes}, f.asked(req)
}

func (f *fleet) Deactivate(_ context.Context, req *api.DeactivateRequest) (*api.DeactivateReply, error) {
	nodes, err := f.named(req.GetNodes())
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		n.Deactivated = !req.GetUndo()
	}
	return &api.DeactivateReply{Nodes: nodes}, f.asked(req)
}

func (f *fleet) Forget(_ context.Context, req *api.ForgetRequest) (*api.ForgetReply, error) {
	nodes, err := f.named(req.GetNodes())
	if err != nil {
		return nil, err
	}
	reply := &api.ForgetReply{}
	for i, n := range nodes {
		if n.GetState() != "LOST" && n.GetState() != "GONE" {
			return nil, status.Errorf(codes.FailedPrecondition, "node %s: only a node that is LOST or GONE is forgotten: it is %s", n.GetName(), n.GetState())
		}
		reply.Nodes = append(reply.Nodes, &api.ForgottenNode{Node: n.GetName(), Id: n.GetId(), State: n.GetState(), Blocks: int64(i) + 1})
	}
	return reply, f.asked(req)
}

func (f *fleet) Revoke(_ context.Context, req *api.RevokeRequest) (*api.RevokeReply, error) {
	return &api.RevokeReply{}, f.asked(req)
}

func (f *fleet) ListRevoked(context.Context, *api.ListRevokedRequest) (*api.ListRevokedReply, error) {
	reply := &api.ListRevokedReply{}
	return reply, f.read("revoked.json", reply)
}

func (f *fleet) maintenance(req proto.Message) (*api.Maintenance, error) {
	m := &api.Maintenance{}
	return m, errors.Join(f.read("maintenance.json", m), f.asked(req))
}

func (f *fleet) GetMaintenance(_ context.Context, req *api.GetMaintenanceRequest) (*api.Maintenance, error) {
	return f.maintenance(req)
}

func (f *fleet) ScheduleMaintenance(_ context.Context, req *api.ScheduleMaintenanceRequest) (*api.Maintenance, error) {
	return f.maintenance(req)
}

func (f *fleet) ChangeMachines(_ context.Context, req *api.ChangeMachinesRequest) (*api.Maintenance, error) {
	return f.maintenance(req)
}

func (f *fleet) ListBlocks(req *api.ListBlocksRequest, s grpc.ServerStreamingServer[api.ListBlocksReply]) error {
	var r api.ListBlocksReply
	if err := f.read("blocks.json", &r); err != nil {
		return err
	}
	for _, b := range r.GetBlocks() { // one a message: clients must join them
		if req.GetNode() != "" && !strings.Contains(strings.Join(b.GetHolders(), " "), req.GetNode()) {
			continue
		}
		if err := s.Send(&api.ListBlocksReply{Blocks: []*api.BlockInfo{b}}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) Locate(_ context.Context, req *api.LocateRequest) (*api.LocateReply, error) {
	var r api.LocateReply
	if err := f.read("locate"+req.GetAfter()+".json", &r); err != nil {
		return nil, err
	}
	for _, h := range slices.Concat(r.GetHolders(), r.GetCandidates(), r.GetFallbacks(), r.GetUnheard()) {
		if h.Address = f.peers[h.GetNode()]; h.Address == "" {
			h.Address = "127.0.0.1:1" // nobody listens there
		}
	}
	return &r, nil
}

func (f *fleet) GetManifest(_ *api.GetManifestRequest, s grpc.ServerStreamingServer[api.GoodbyeRequest]) error {
	var whole api.GoodbyeRequest
	if err := f.read("manifest.json", &whole); err != nil {
		return err
	}
	if err := s.Send(&api.GoodbyeRequest{Summary: whole.GetSummary()}); err != nil {
		return err
	}
	return s.Send(&api.GoodbyeRequest{Entries: whole.GetEntries()})
}

func (f *fleet) Events(req *api.EventsRequest, s grpc.ServerStreamingServer[api.Event]) error {
	data, err := os.ReadFile(filepath.Join(f.dir, "events.json"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		var e api.Event
		if err := protojson.Unmarshal([]byte(line), &e); err != nil {
			return err
		}
		at, wanted := api.PlaceAfter(req), req.GetTypes()
		if api.PlaceOf(&e).Compare(at) <= 0 || len(wanted) > 0 && !slices.Contains(wanted, e.GetType()) || req.GetNode() != "" && e.GetNode() != req.GetNode() {
			continue
		}
		if err := s.Send(&e); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) SaveSnapshot(_ *api.SaveSnapshotRequest, s grpc.ServerStreamingServer[api.SaveSnapshotReply]) error {
	for _, part := range []string{"what is known, ", "in two parts\n"} {
		if err := s.Send(&api.SaveSnapshotReply{Data: []byte(part)}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) GetStatus(context.Context, *api.GetStatusRequest) (*api.CoordinatorStatus, error) {
	var r api.CoordinatorStatus
	return &r, f.read("status.json", &r)
}

type fakeAgent struct {
	api.UnimplementedLocalServer
	fleet *fleet
}

const fakeIncident = "inc-0123456789ab"

func (a *fakeAgent) DecommissionSelf(_ context.Context, req *api.DecommissionSelfRequest) (*api.DecommissionSelfReply, error) {
	return &api.DecommissionSelfReply{Incident: fakeIncident, Remaining: req.GetTimeout()}, a.fleet.asked(req)
}

func (a *fakeAgent) GetStatus(context.Context, *api.GetAgentStatusRequest) (*api.AgentStatus, error) {
	var r api.AgentStatus
	return &r, a.fleet.read("agent.json", &r)
}

func (a *fakeAgent) Cancel(_ context.Context, req *api.CancelRequest) (*api.CancelReply, error) {
	var r api.CancelReply
	return &r, errors.Join(a.fleet.read("cancel.json", &r), a.fleet.asked(req))
}

func (a *fakeAgent) Simulate(ctx context.Context, req *api.SimulateRequest) (*api.SimulateReply, error) {
	var r api.SimulateReply
	if err := a.fleet.read("simulate.json", &r); err != nil {
		return a.UnimplementedLocalServer.Simulate(ctx, req)
	}
	return &r, nil
}

func (a *fakeAgent) EvacuateDisk(_ context.Context, req *api.EvacuateDiskRequest) (*api.EvacuateDiskReply, error) {
	var s api.AgentStatus
	if err := a.fleet.read("agent.json", &s); err != nil {
		return nil, err
	}
	for _, v := range s.GetEvacuations() {
		if v.GetPath() == req.GetPath() {
			return &api.EvacuateDiskReply{Evacuations: []*api.Evacuation{v}}, a.fleet.asked(req)
		}
	}
	return nil, status.Errorf(codes.NotFound, "no directory at or below %q", req.GetPath())
}

func (a *fakeAgent) SetValues(_ context.Context, req *api.SetValuesRequest) (*api.SetValuesReply, error) {
	for i, v := range req.GetValues() {
		if !strings.HasPrefix(v.GetId(), "cache/") {
			return nil, status.Errorf(codes.InvalidArgument, "value %d of %d: %s: no such store", i+1, len(req.GetValues()), v.GetId())
		}
	}
	return &api.SetValuesReply{}, a.fleet.asked(req)
}

func (a *fakeAgent) ListBlocks(req *api.ListBlocksRequest, s grpc.ServerStreamingServer[api.ListBlocksReply]) error {
	return a.fleet.ListBlocks(req, s)
}

func (a *fakeAgent) GetManifest(req *api.GetManifestRequest, s grpc.ServerStreamingServer[api.GoodbyeRequest]) error {
	return a.fleet.GetManifest(req, s)
}
