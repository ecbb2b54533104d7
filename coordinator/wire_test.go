package coordinator

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

func TestStrangers(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		r, err := a.Heartbeat(v.Context(), &api.HeartbeatRequest{Node: "a", Incarnation: "i"})
		if err != nil || !r.Register {
			v.Errorf("an unknown node beats: got %v, %v, want to be told to register", r, err)
		}
		_, err = a.WorkerDecommission(v.Context(), &api.WorkerDecommissionRequest{Node: "a", Incarnation: "i", Notice: &api.Notice{Incident: "x"}})
		v.refused(err, codes.NotFound, "must register first")
		a.register()
		r, err = a.Heartbeat(v.Context(), &api.HeartbeatRequest{Node: "a", Incarnation: "other"})
		if err != nil || !r.Register {
			v.Errorf("another incarnation beats: got %v, %v, want to be told to register", r, err)
		}
		_, err = a.WorkerDecommission(v.Context(), &api.WorkerDecommissionRequest{Node: "a", Incarnation: "other", Notice: &api.Notice{Incident: "x"}})
		v.refused(err, codes.FailedPrecondition, "another machine has this name")
		_, err = v.operator().GetNode(v.Context(), &api.GetNodeRequest{Node: "b"})
		v.refused(err, codes.NotFound, "lifeboat nodes lists")
		_, err = v.operator().Decommission(v.Context(), &api.DecommissionRequest{Nodes: []string{"a", "b"}})
		v.refused(err, codes.NotFound, "node b")
		v.is("a", registry.Active)
		_, err = v.operator().Decommission(v.Context(), &api.DecommissionRequest{})
		v.refused(err, codes.InvalidArgument, "name at least one")
	})
}

func TestWhoMayCallWhat(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		a.register()
		ctx := v.Context()
		for call, err := range map[string]error{
			"register":    fails(b.Register(ctx, &api.RegisterRequest{Node: "a", Incarnation: "i", PeerAddress: "b:1"})),
			"beat":        fails(b.Heartbeat(ctx, &api.HeartbeatRequest{Node: "a", Incarnation: a.incarnation})),
			"announce":    fails(b.WorkerDecommission(ctx, &api.WorkerDecommissionRequest{Node: "a", Incarnation: a.incarnation, Notice: &api.Notice{Incident: "x"}})),
			"withdraw":    fails(b.WithdrawDecommission(ctx, &api.WithdrawDecommissionRequest{Node: "a", Incarnation: a.incarnation, Incident: "x"})),
			"unavailable": fails(b.ReportUnavailable(ctx, &api.ReportUnavailableRequest{Node: "a", Incarnation: a.incarnation})),
			"report":      reports(b, &api.ReportBlocksRequest{Node: "a", Incarnation: a.incarnation}),
			"goodbye":     says(b, &api.GoodbyeRequest{Summary: &api.ManifestSummary{Node: "a", Incarnation: a.incarnation}}),
		} {
			if err == nil {
				v.Errorf("%s in another's name was taken", call)
				continue
			}
			v.refused(err, codes.PermissionDenied, "node b may not speak for node \"a\"")
		}
		node, person := v.conn(certs.RoleNode, "a"), v.conn(certs.RoleOperator, "eve")
		_, err := api.NewOperatorClient(node).Decommission(ctx, &api.DecommissionRequest{Nodes: []string{"a"}})
		v.refused(err, codes.PermissionDenied, "operator's certificate")
		_, err = api.NewOperatorClient(node).Recommission(ctx, &api.RecommissionRequest{Nodes: []string{"a"}})
		v.refused(err, codes.PermissionDenied, "operator's certificate")
		if _, err := api.NewOperatorClient(node).ListNodes(ctx, &api.ListNodesRequest{}); err != nil {
			v.Errorf("a node may look: %v", err)
		}
		_, err = api.NewMembershipClient(person).Heartbeat(ctx, &api.HeartbeatRequest{Node: "eve", Incarnation: "i"})
		v.refused(err, codes.PermissionDenied, "operator eve may not call")

		app := api.NewOperatorClient(v.conn(certs.RoleApp, "app"))
		if _, err := app.ListNodes(ctx, &api.ListNodesRequest{}); err != nil {
			v.Errorf("an app may look: %v", err)
		}
		_, err = app.Decommission(ctx, &api.DecommissionRequest{Nodes: []string{"a"}})
		v.refused(err, codes.PermissionDenied, "operator's certificate")

		// A single coordinator refuses other coordinators; without WaitForReady the refusal of the handshake is the call's error.
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if _, err := api.NewOperatorClient(v.conn(certs.RoleCoordinator, "c2")).ListNodes(short, &api.ListNodesRequest{}); err == nil {
			v.Error("another coordinator's certificate opened the control plane")
		}
		v.is("a", registry.Active)
	})
}

func fails[T any](_ T, err error) error { return err }

func reports(a *agent, r *api.ReportBlocksRequest) error {
	stream, err := a.ReportBlocks(a.Context())
	if err != nil {
		return err
	}
	if err := stream.Send(r); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return fails(stream.CloseAndRecv())
}

func says(a *agent, rs ...*api.GoodbyeRequest) error {
	stream, err := a.Goodbye(a.Context())
	if err != nil {
		return err
	}
	for _, r := range rs {
		if err := stream.Send(r); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return fails(stream.CloseAndRecv())
}

func TestWireIsBounded(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		long := strings.Repeat("x", 5000)
		ok := func() *api.RegisterRequest {
			return &api.RegisterRequest{Node: "a", Incarnation: "i", PeerAddress: "a:1", Status: &api.Status{}}
		}
		for what, spoil := range map[string]func(*api.RegisterRequest){
			"incarnation is empty":         func(r *api.RegisterRequest) { r.Incarnation = "" },
			"incarnation of 5000 bytes":    func(r *api.RegisterRequest) { r.Incarnation = long },
			"zone of 5000 bytes":           func(r *api.RegisterRequest) { r.Zone = long },
			"pool \"\\x1b[2J\"":            func(r *api.RegisterRequest) { r.Pool = "\x1b[2J" },
			"must be HOST:PORT":            func(r *api.RegisterRequest) { r.PeerAddress = "a" },
			"the port must be":             func(r *api.RegisterRequest) { r.PeerAddress = "a:http" },
			"set listen.advertise":         func(r *api.RegisterRequest) { r.PeerAddress = "0.0.0.0:7412" },
			"-1 is negative":               func(r *api.RegisterRequest) { r.Status.RoomBytes = -1 },
			"largest_vault_room_bytes: -3": func(r *api.RegisterRequest) { r.Status.LargestVaultRoomBytes = -3 },
			"vault_room_bytes: -2":         func(r *api.RegisterRequest) { r.Status.VaultRoomBytes = new(int64(-2)) },
			"300 disks in one message":     func(r *api.RegisterRequest) { r.Status.Disks = make([]*api.Disk, 300) },
			"disk path of 5000 bytes":      func(r *api.RegisterRequest) { r.Status.Disks = []*api.Disk{{Path: long}} },
			"notice reason of 5000 bytes":  func(r *api.RegisterRequest) { r.Status.Notice = &api.Notice{Reason: long} },
			"notice remaining of":          func(r *api.RegisterRequest) { r.Status.Notice = &api.Notice{Remaining: durationpb.New(1 << 62)} },
			"2000 peers in one message": func(r *api.RegisterRequest) {
				r.Status.Drain = &api.DrainProgress{Peers: make([]*api.PeerProgress, 2000)}
			},
			"store name of 5000 bytes":   func(r *api.RegisterRequest) { r.Status.Stores = []*api.StoreInfo{{Name: long}} },
			"drain phase of 5000 bytes":  func(r *api.RegisterRequest) { r.Status.Drain = &api.DrainProgress{Phase: long} },
			"drain progress: -3":         func(r *api.RegisterRequest) { r.Status.Drain = &api.DrainProgress{BytesMoved: -3} },
			"held_bytes: -9 is negative": func(r *api.RegisterRequest) { r.Status.HeldBytes = -9 },
			"trouble of 5000 bytes": func(r *api.RegisterRequest) {
				r.Status.Drain = &api.DrainProgress{Peers: []*api.PeerProgress{{Trouble: long}}}
			},
			"300 disks awaited":           func(r *api.RegisterRequest) { r.Status.Drain = &api.DrainProgress{Awaits: make([]string, 300)} },
			"disk awaited of 5000 bytes":  func(r *api.RegisterRequest) { r.Status.Drain = &api.DrainProgress{Awaits: []string{long}} },
			"version of 5000 bytes":       func(r *api.RegisterRequest) { r.Version = long },
			"disk /d: -2 is negative":     func(r *api.RegisterRequest) { r.Status.Disks = []*api.Disk{{Path: "/d", TotalBytes: -2}} },
			"300 stores in one message":   func(r *api.RegisterRequest) { r.Status.Stores = make([]*api.StoreInfo, 300) },
			"notice stance of 5000 bytes": func(r *api.RegisterRequest) { r.Status.Notice = &api.Notice{Stance: long} },
			"notice remaining: ": func(r *api.RegisterRequest) {
				r.Status.Notice = &api.Notice{Remaining: &durationpb.Duration{Seconds: 1, Nanos: -1}}
			},
		} {
			r := ok()
			spoil(r)
			_, err := a.Register(v.Context(), r)
			v.refused(err, codes.InvalidArgument, what)
		}
		_, err := a.Register(v.Context(), &api.RegisterRequest{Node: "a", Zone: strings.Repeat(long, 1000)})
		v.refused(err, codes.ResourceExhausted, "larger than max")

		a.register()
		const node, inc = "a", "inc-of-a"
		v.refused(reports(a, &api.ReportBlocksRequest{Node: node, Incarnation: inc, Gone: make([]string, maxBlocks+1)}), codes.InvalidArgument, "send more messages")
		v.refused(reports(a, &api.ReportBlocksRequest{Node: node, Incarnation: inc, Gone: []string{"x"}}), codes.InvalidArgument, "STORE/SCOPE/NAME")
		v.refused(reports(a, &api.ReportBlocksRequest{Node: node, Incarnation: inc, Landed: []*api.HeldBlock{{Id: "a/b/" + long}}}), codes.InvalidArgument, "block id of 5004 bytes")
		v.refused(reports(a, &api.ReportBlocksRequest{Node: node, Incarnation: inc, Landed: []*api.HeldBlock{{Id: "a/b/c", Bytes: -1}}}), codes.InvalidArgument, "negative")
		for what, run := range badRuns() {
			v.refused(reports(a, &api.ReportBlocksRequest{Node: node, Incarnation: inc, Runs: []*api.HeldRun{{From: "b", Blocks: run}}}), codes.InvalidArgument, what)
		}
		v.refused(reports(a, &api.ReportBlocksRequest{Node: node, Incarnation: inc, Runs: []*api.HeldRun{{From: long, Blocks: api.NewBlockRun("a/b/c", 1)}}}), codes.InvalidArgument, "from of 5000 bytes")
		v.refused(reports(a, &api.ReportBlocksRequest{Node: node, Incarnation: "old"}), codes.FailedPrecondition, "must register first")
		s := &api.ManifestSummary{Node: node, Incarnation: inc}
		v.refused(says(a), codes.InvalidArgument, "without a summary")
		v.refused(says(a, &api.GoodbyeRequest{}), codes.InvalidArgument, "without a summary")
		v.refused(says(a, &api.GoodbyeRequest{Summary: s, Entries: []*api.ManifestEntry{{Id: "a/b/c", Outcome: "eaten"}}}), codes.InvalidArgument, "must be moved, lost or skipped")
		v.refused(says(a, &api.GoodbyeRequest{Summary: s, Entries: make([]*api.ManifestEntry, maxBlocks+1)}), codes.InvalidArgument, "send more messages")
		for what, run := range badRuns() {
			v.refused(says(a, &api.GoodbyeRequest{Summary: s, Runs: []*api.ManifestRun{{Outcome: "moved", Blocks: run}}}), codes.InvalidArgument, what)
		}
		for what, run := range map[string]*api.ManifestRun{
			"must be moved, lost or skipped": {Outcome: "eaten"}, "peer of 5000 bytes": {Outcome: "moved", Peer: long}, "reason of 5000 bytes": {Outcome: "lost", Reason: long},
		} {
			run.Blocks = api.NewBlockRun("a/b/c", 1)
			v.refused(says(a, &api.GoodbyeRequest{Summary: s, Runs: []*api.ManifestRun{run}}), codes.InvalidArgument, what)
		}
		unnamed := api.NewBlockRun("(12 blocks)", 1)
		v.refused(says(a, &api.GoodbyeRequest{Summary: s, Runs: []*api.ManifestRun{{Outcome: "moved", Blocks: unnamed}}}), codes.InvalidArgument, "STORE/SCOPE/NAME")
		v.refused(says(a, &api.GoodbyeRequest{Summary: &api.ManifestSummary{Node: node, Incarnation: inc, Lost: &api.Count{Blocks: -1}}}), codes.InvalidArgument, "negative")
		v.is("a", registry.Active)
	})
}

// badRuns returns runs that are refused, by the words of the refusal.
func badRuns() map[string]*api.BlockRun {
	return map[string]*api.BlockRun{
		"a run of 0 names and 0 sizes":              nil,
		"a run of 0 names and 1 sizes":              {Scope: "a/b", Bytes: []int64{1}},
		"a run of 2 names and 1 sizes":              {Scope: "a/b", Names: []byte("xy"), Lengths: []uint32{1, 1}, Bytes: []int64{1}},
		"of 3 bytes in all, with 2 bytes of names":  {Scope: "a/b", Names: []byte("xy"), Lengths: []uint32{1, 2}, Bytes: []int64{1, 1}},
		"of 1 bytes in all, with 2 bytes of names":  {Scope: "a/b", Names: []byte("xy"), Lengths: []uint32{1}, Bytes: []int64{1}},
		"of 8589934590 bytes in all":                {Scope: "a/b", Lengths: []uint32{1<<32 - 1, 1<<32 - 1}, Bytes: []int64{1, 1}},
		"block x: -1 is negative":                   {Scope: "a/b", Names: []byte("x"), Lengths: []uint32{1}, Bytes: []int64{-1}},
		`block id "a/b/": must be STORE/SCOPE/NAME`: {Scope: "a/b", Names: []byte("x"), Lengths: []uint32{1, 0}, Bytes: []int64{1, 1}},
		`block id "x": must be STORE/SCOPE/NAME`:    {Names: []byte("x"), Lengths: []uint32{1}, Bytes: []int64{1}},
		`block id "a/b/\xc3": must be UTF-8`:        {Scope: "a/b", Names: []byte("é"), Lengths: []uint32{1, 1}, Bytes: []int64{1, 1}},
		`block id "a/b/\x1b": must be UTF-8`:        {Scope: "a/b", Names: []byte("\x1b"), Lengths: []uint32{1}, Bytes: []int64{1}},
		`scope "a": must be STORE/SCOPE`:            {Scope: "a", Names: []byte("b/x"), Lengths: []uint32{3}, Bytes: []int64{1}},
		`scope "a/b/c": must be STORE/SCOPE`:        {Scope: "a/b/c", Names: []byte("x"), Lengths: []uint32{1}, Bytes: []int64{1}},
		`scope "/": must be STORE/SCOPE`:            {Scope: "/", Names: []byte("x"), Lengths: []uint32{1}, Bytes: []int64{1}},
		`scope "a/\x1b": must be STORE/SCOPE`:       {Scope: "a/\x1b", Names: []byte("x"), Lengths: []uint32{1}, Bytes: []int64{1}},
		"block id of 4097 bytes":                    api.NewBlockRun("a/b/"+strings.Repeat("x", 4093), 1),
		"send more messages":                        {Scope: "a/b", Lengths: make([]uint32, maxBlocks+1)},
	}
}

// The status that a node reported about an order that was taken back is not shown, although the node has yet to hear of it. The status of
// its own notice is.
func TestOrderThatWasTakenBackIsNotShown(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.beat()
		takenBack := func() *api.Node {
			v.Helper()
			reply, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}})
			if err != nil {
				v.Fatal(err)
			}
			return reply.Nodes[0]
		}
		v.order(time.Minute, "a")
		a.notice("dec-2", time.Minute)
		a.status.Notice.Kind, a.status.Drain = registry.Echo, &api.DrainProgress{Phase: "sending", BlocksTotal: 7}
		a.beat()
		if n := v.seen("a"); n.Status.Notice == nil || n.Status.Drain == nil || n.State != string(registry.Decommissioning) {
			v.Errorf("as it leaves: got %v", n)
		}
		if n := takenBack(); n.Status.Notice != nil || n.Status.Drain != nil || n.State != string(registry.Active) {
			v.Errorf("taken back: got %s with %v, %v, want it without a notice and a drain", n.State, n.Status.Notice, n.Status.Drain)
		}

		v.order(time.Minute, "a")
		a.notice("its-own", time.Minute)
		a.beat()
		if n := takenBack(); n.Status.Notice == nil || n.State != string(registry.Decommissioning) {
			v.Errorf("it leaves by its own notice: got %s with %v", n.State, n.Status.Notice)
		}
	})
}

// A list of nodes shares the nodes' statuses with all its readers, and writes to none of them.
func TestPictureWritesToNoStatus(t *testing.T) {
	left := &registry.Decommission{ID: "dec-1", StartedAt: t0, Notice: &registry.Notice{Incident: "inc-1", Kind: "terminate", Source: "ec2", Deadline: t0.Add(time.Hour)}}
	for _, n := range []registry.Node{
		{Name: "a", State: registry.Active},
		{Name: "a", State: registry.Decommissioning, Decommission: left},
	} {
		for _, said := range []*api.Status{{RoomBytes: 1}, {RoomBytes: 1, Notice: &api.Notice{Kind: registry.Echo, Remaining: durationpb.New(time.Hour)}}} {
			before := proto.CloneOf(said)
			out := nodeTo(n, pulse{heard: true, status: said, said: t0}, t0.Add(time.Minute))
			if !proto.Equal(said, before) {
				t.Errorf("%s: the status %v became %v", n.State, before, said)
			}
			if n.Leaving() && out.Status.GetNotice() == nil || out.Status.GetRoomBytes() != 1 {
				t.Errorf("%s: got %v, want what it said, and the notice of the log", n.State, out.Status)
			}
		}
	}
}
