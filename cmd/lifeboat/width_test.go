package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

// wantNarrow checks that nothing of an output is wider than a table may be.
func wantNarrow(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if n := show.Columns(strings.TrimSuffix(line, "\n")); n > show.Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestPeersThatADrainSendsToFit(t *testing.T) {
	long := "ip-10-20-30-40.eu-central-1.compute.internal"
	s := &api.AgentStatus{
		Node: "host-a", Coordinator: "10.0.0.1:7411",
		Status: &api.Status{Drain: &api.DrainProgress{Phase: "sending", Peers: []*api.PeerProgress{
			{Node: long, Blocks: 123456, Bytes: 1 << 40, Trouble: "receipts from " + long + ": read tcp 10.20.30.1:41234->10.20.30.40:7412: connection reset by peer"},
			{Node: "host-c", Blocks: 1, Bytes: 1},
		}}},
		Peers: []*api.Peer{{Node: long, Address: "10.20.30.40:7412", Zone: "eu-central-1a", Pool: "r5.24xlarge-spot-production", RoomBytes: 1 << 40, Advised: true}},
	}
	w := show.Picture{Width: show.Width}
	if err := printAgent(&w, s); err != nil {
		t.Fatal(err)
	}
	wantNarrow(t, w.String())
	for _, want := range []string{"ip-10-20-30", "receipts from", "host-c"} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("no %q in\n%s", want, w.String())
		}
	}
}

// Who asked for what of which nodes is read on a terminal of any width.
func TestAuditNamesAllNodesOnANarrowTerminal(t *testing.T) {
	r := &api.AuditRecord{
		Index: 12, Time: timestamppb.New(time.Unix(0, 0)), Who: "operator:eve", Asked: "decommission", Nodes: []string{"host-a", "host-b", "host-c", "host-d"},
		Outcome: "refused: node host-d: not known here", From: "10.0.0.1", Reason: "the rack is moved to another room",
	}
	w := show.Picture{Width: show.LeastWidth}
	if err := printRecord(&w, r); err != nil {
		t.Fatal(err)
	}
	const want = `
    12  1970-01-01T00:00:00Z operator:eve decommission
        host-a, host-b, host-c, host-d
        refused: node host-d: not known here, from 10.0.0.1:
        "the rack is moved to another room"
`
	if got := "\n" + w.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// How many blocks of a leaving node have gone is read on a terminal of any width.
func TestBlocksThatHaveGoneAreReadOnANarrowTerminal(t *testing.T) {
	nodes := []*api.Node{{
		Name: "host-a", State: "DECOMMISSIONING", SubState: "WAIT_WORKLOAD", Remaining: durationpb.New(90 * time.Second), LastHeartbeat: durationpb.New(time.Second),
		Status: &api.Status{Notice: &api.Notice{Kind: "terminate"}, HeldBytes: 1 << 30, RoomBytes: 1 << 40, Drain: &api.DrainProgress{BlocksMoved: 12, BlocksTotal: 345}},
	}}
	for width, state := range map[int]string{show.LeastWidth: "WAIT_WORKLOAD ", 80: "WAIT_WORKLOAD ", show.Width: "DECOMMISSIONING/WAIT_WORKLOAD"} {
		w := show.Picture{Width: width}
		if err := printNodes(&w, show.Tables, nodes); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{state, "1m30s", "12/345"} {
			if _, line, _ := strings.Cut(w.String(), "\n"); !strings.Contains(show.Cut(line, width), want) {
				t.Errorf("no %q within %d columns of\n%s", want, width, w.String())
			}
		}
	}
}

// A machine of the maintenance schedule will have its appointment as its deadline, and the list says so before the node leaves.
func TestNodesShowTheAppointmentAsDeadline(t *testing.T) {
	now := time.Unix(1e9, 0)
	n := &api.Node{Name: "host-a", State: "ACTIVE", Maintenance: "DRAINING", Now: timestamppb.New(now), MaintenanceStart: timestamppb.New(now.Add(66 * time.Minute))}
	w := show.Picture{Width: show.LeastWidth}
	if err := printNodes(&w, show.Tables, []*api.Node{n}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(w.String(), "in 1h6m") {
		t.Errorf("got\n%swant the appointment in 1h6m", w.String())
	}
}

// A sentence at the end of a row is folded, not cut.
func TestStatusFoldsWhatIsLong(t *testing.T) {
	said := "coordinator 10.0.0.1:7411: register: authentication handshake failed: certificate is not signed by our CA: peer claims to be coordinator c1, want any coordinator"
	reason := "EC2 instance-retirement: the instance is running on degraded hardware and will be stopped, so that nobody is left on it"
	s := &api.AgentStatus{
		Node: "host-a", Coordinator: "10.0.0.1:7411", CoordinatorTrouble: said,
		Fallback: &api.Fallback{Name: "spill", Tried: durationpb.New(time.Second), Since: durationpb.New(time.Minute), Trouble: said},
		Status: &api.Status{
			Notice:    &api.Notice{Kind: "retirement", Source: "ec2", Stance: "drain", Remaining: durationpb.New(time.Minute), Reason: reason},
			Workloads: []*api.Workload{{Name: "spark-worker", Type: "unit", State: "UNKNOWN", Since: durationpb.New(time.Minute), Apps: []string{"application_1", "application_2", "application_3"}, Trouble: said}},
		},
		Notices: []*api.NoticeInForce{{Kind: "retirement", Source: "ec2", Stance: "drain", Age: durationpb.New(99 * time.Second), Remaining: durationpb.New(time.Minute), Reason: reason}},
		Sources: []*api.SourceHealth{{Source: "ec2", Path: "autoscaling/target-lifecycle-state", Trouble: said}},
	}
	w := show.Picture{Width: show.Width}
	if err := printAgent(&w, s); err != nil {
		t.Fatal(err)
	}
	wantNarrow(t, w.String())
	rows, _, _ := strings.Cut(w.String(), "\n\n")
	whole := strings.Join(strings.Fields(rows), " ")
	for _, want := range []string{"10.0.0.1:7411, has not answered yet: register: authentication", "want any coordinator fallback", reason + " held"} {
		if !strings.Contains(whole, want) {
			t.Errorf("no %q in\n%s", want, w.String())
		}
	}
}

// Disks of nodes with long names can be told apart.
func TestDisksOfLongNamesAreToldApart(t *testing.T) {
	var all []diskOf
	for _, node := range []string{"ip-10-20-30-40.eu-central-1.compute.internal", "ip-10-20-30-41.eu-central-1.compute.internal"} {
		for _, path := range []string{"/mnt/disks/nvme-0/lifeboat/cache", "/mnt/disks/nvme-1/lifeboat/cache", "/mnt/disks/nvme-1/spark"} {
			all = append(all, diskOf{node: node, Disk: &api.Disk{
				Path: path, Health: "SLOW", Why: "a probe took 1.2s", Since: durationpb.New(time.Minute), TotalBytes: 252 << 30, UsableBytes: 54 << 30,
				Slots: new(int64(4031)), FreeSlots: new(int64(864)), FlushBytesPerSecond: new(int64(98 << 20)), FetchBytesPerSecond: new(int64(241 << 20)),
			}})
		}
	}
	w := show.Picture{Width: show.Width}
	if err := printDisks(&w, show.Tables, all); err != nil {
		t.Fatal(err)
	}
	wantNarrow(t, w.String())
	seen := map[string]bool{}
	for line := range strings.Lines(w.String()) {
		if seen[line] && strings.Contains(line, "ip-10") {
			t.Errorf("twice: %s", line)
		}
		seen[line] = true
	}
}

// An id without room beside its holders gets a line of its own.
func TestBlocksFit(t *testing.T) {
	long := "spark/application_1731412345678_0001/shuffle_12_3456_0"
	longest := "cache/-/models/" + strings.Repeat("of-some-length/", 4) + "weights.bin"
	w := show.Picture{Width: show.Width}
	p := blockPrinter{w: &w, values: true}
	for _, id := range []string{"cache/-/a", long, longest} {
		if err := p.add(&api.BlockInfo{Id: id, Bytes: 1000 << 20, State: "held", Holders: []string{"ip-10-20-30-40.eu-central-1.compute.internal", "host-b"}, Value: durationpb.New(2 * time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	wantNarrow(t, w.String())
	for _, want := range []string{"HOLDERS                   BLOCK\n", "ip-10-20-30-40.eu-central-1.compute.internal,host-b  cache/-/a\n", "ip-10-20-30-40.…  " + long + "\n", "host-b\n  " + longest + "\n"} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("no %q in\n%s", want, w.String())
		}
	}
}

// On a narrow terminal the ids of a list begin below each other as well, where there is room for it.
func TestBlocksLineUp(t *testing.T) {
	w := show.Picture{Width: show.LeastWidth}
	p := blockPrinter{w: &w, values: true}
	for _, id := range []string{"cache/-/a", "cache/-/model-12.bin"} {
		if err := p.add(&api.BlockInfo{Id: id, State: "held", Holders: []string{"host-a"}}); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(w.String(), "\n")
	for _, line := range lines[1:3] {
		if got, want := strings.Index(line, "cache/"), strings.Index(lines[0], "BLOCK"); got != want {
			t.Errorf("it begins at %d, want %d:\n%s", got, want, w.String())
		}
	}
}

// The ids of Spark's blocks are long. They stay whole, since they are what people copy.
func TestManifestFits(t *testing.T) {
	id := "spark/blockmgr-0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f/shuffle_12_3456_0"
	w := show.Picture{Width: show.Width}
	p := manifestPrinter{w: &w, all: true}
	for _, e := range []*api.ManifestEntry{
		{Id: "cache/-/a", Bytes: 1 << 10, Outcome: "moved", Peer: "host-b"},
		{Id: id[:len(id)-5], Bytes: 1000 << 20, Outcome: "moved", Peer: "host-of-some-length"},
		{Id: id, Bytes: 1 << 40, Outcome: "moved", Peer: "host-of-some-length"},
		{Id: id + "/" + id[:20], Bytes: 1 << 40, Outcome: "moved", Peer: "host-of-some-length"},
		{Id: id + "/" + id[:20], Bytes: 1 << 40, Outcome: "lost", Reason: "no room"},
		{Id: id, Bytes: 1 << 10, Outcome: "lost", Reason: "the deadline came first: " + strings.Repeat("it was tried ", 20)},
	} {
		if err := p.entry(e); err != nil {
			t.Fatal(err)
		}
	}
	wantNarrow(t, w.String())
	for _, want := range []string{id + "\n", "  the deadline came first", "host-of-s…", "host-b            cache/-/a\n", "host-of-some-length\n  " + id, "-\n  " + id + "/" + id[:20] + "\n  no room\n"} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("no %q in\n%s", want, w.String())
		}
	}
}

// What doctor finds fits a narrow window, and is not wider than a page on a wide one.
func TestFindingsFit(t *testing.T) {
	found := []finding{{Check: "agent", State: stateOK, Found: "host-a"}, {Check: "peers", State: stateBad, Found: strings.Repeat("no room ", 20), Remedy: moreRoom}}
	for window, most := range map[int]int{show.LeastWidth: show.LeastWidth, 200: show.Width} {
		w := show.Picture{Width: window}
		if err := printFindings(&w, found); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(w.String()) {
			if n := show.Columns(strings.TrimSuffix(line, "\n")); n > most {
				t.Errorf("in a window of %d: %d columns: %s", window, n, line)
			}
		}
		if !strings.Contains(w.String(), "\n"+strings.Repeat(" ", 12)+"-> more nodes") {
			t.Errorf("no remedy below what was found:\n%s", w.String())
		}
	}
}

// The room of a vault is shown only if it reads differently from the node's.
func TestRoomIsToldOnce(t *testing.T) {
	for vault, want := range map[int64]string{75 << 30: "75.0 GiB", 75<<30 - 4096: "75.0 GiB", 74 << 30: "75.0 GiB (vault: 74.0 GiB)", 0: "75.0 GiB (vault: 0 B)"} {
		if got := roomWords(75<<30, &vault); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// A list of tokens fits, whoever made them.
func TestTokensFit(t *testing.T) {
	w := show.Picture{Width: show.Width}
	err := printTokens(&w, []*api.TokenInfo{
		{Id: "0123456789ab", Role: "node", UsesLeft: 3, Joined: 2, Remaining: durationpb.New(90 * time.Minute), By: "operator:" + strings.Repeat("long-", 25)},
		{Id: "abcdef012345", Role: "operator", Name: "alice", Remaining: durationpb.New(time.Minute), By: "operator:\x1b[2Jeve"},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantNarrow(t, w.String())
	for _, want := range []string{"node      any    3          2       1h30m       operator:long-", "operator  alice  any        0       1m0s        operator:?[2Jeve"} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("no %q in\n%s", want, w.String())
		}
	}
}

// Help fits, whatever width its source has. Examples are what people copy: they are not broken.
func TestHelpFits(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), append(strings.Fields(cmd.CommandPath())[1:], "--help"), &stdout, &stderr); code != exitDone {
			t.Errorf("%s: exit code %d, %s", cmd.CommandPath(), code, stderr.String())
		}
		text, rest, _ := strings.Cut(stdout.String(), "\nUsage:\n")
		_, flags, _ := strings.Cut(rest, "\nFlags:\n")
		wantNarrow(t, text)
		wantNarrow(t, flags)
		for _, c := range cmd.Commands() {
			check(c)
		}
	}
	check(rootCommand())
}

func TestHelpIsFolded(t *testing.T) {
	c := &cobra.Command{Long: "one two\nthree four\n\n\tas it is, however wide\nfive\n  six"}
	foldHelp(c, 10)
	if want := "one two\nthree four\n\n\tas it is, however wide\nfive\n  six"; c.Long != want {
		t.Errorf("got %q, want %q", c.Long, want)
	}
	foldHelp(c, 100)
	if want := "one two three four\n\n\tas it is, however wide\nfive\n  six"; c.Long != want {
		t.Errorf("got %q, want %q", c.Long, want)
	}
}

// The speed stands last: in a window of 80 columns it was cut off.
func TestDrainViewFits(t *testing.T) {
	view := drainView(&api.AgentStatus{Node: "node-1", Status: &api.Status{
		Notice: &api.Notice{Kind: "terminate", Remaining: durationpb.New(100 * time.Second)},
		Drain: &api.DrainProgress{Phase: "sending", BlocksTotal: 2000, BlocksMoved: 1999, BytesTotal: 512 << 20, BytesMoved: 511 << 20, BytesPerSecond: 128 << 20,
			Peers: []*api.PeerProgress{{Node: "node-2", Blocks: 1000, Bytes: 256 << 20}}},
	}})
	for line := range strings.Lines(view) {
		if n := show.Columns(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
