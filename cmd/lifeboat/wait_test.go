package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func TestWaitShowsWhatIsNewUntilAllHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr bytes.Buffer
		w := newWaiter(&stderr, "host-a, host-b", "lifeboat recommission host-a host-b")
		start := time.Now()
		ended, err := w.run(t.Context(), func(context.Context) ([]leaving, error) {
			at := int(time.Since(start).Seconds())
			a := leaving{node: "host-a", line: fmt.Sprint("x", at), gist: "x"}
			if at >= 12 {
				a.line, a.gist, a.ended = "done", "done", true
			}
			return []leaving{a, {node: "host-b", line: fmt.Sprint("y", at), gist: "y", ended: at >= 14, verdict: exitIncomplete, why: "1 block lost"}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := time.Since(start), 14*time.Second; got < want || got > want+show.WatchPace {
			t.Errorf("took %s, want %s and a look", got, want)
		}
		// In a log file: a line at once, one every ten seconds while only numbers change, and one at once for news.
		if got, want := stderr.String(), "host-a  x0\nhost-b  y0\nhost-a  x10\nhost-b  y10\nhost-a  done\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		err = verdict("drain", ended)
		if got := exitCode(err, true); got != exitIncomplete || !strings.Contains(err.Error(), "drain: host-b: 1 block lost") {
			t.Errorf("got code %d, %v", got, err)
		}
	})
}

// The wait for a short drain ends soon after it: a script may be holding up a shutdown.
func TestWaitForWhatIsSoonOver(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			_, err := newWaiter(&bytes.Buffer{}, "this machine", "").run(t.Context(), func(context.Context) ([]leaving, error) {
				return []leaving{{node: "host-a", ended: time.Since(start) >= takes}}, nil
			})
			late := time.Since(start) - takes
			if most := min(takes/4+50*time.Millisecond, time.Second); err != nil || late > most {
				t.Errorf("got %v, %s after the end of what took %s: at most %s", err, late, takes, most)
			}
		})
	}
}

func TestWaitDrawsOverItselfOnATerminal(t *testing.T) {
	var stderr bytes.Buffer
	w := newWaiter(&stderr, "host-a", "")
	w.size = func() (int, int) { return 10, 24 }
	w.draw([]leaving{{node: "host-a", line: "too long a line"}, {node: "b", line: "x"}})
	w.draw([]leaving{{node: "host-a", line: "y"}})
	if got, want := stderr.String(), "host-a\n  too long\n  a line\nb  x\n\x1b[4A\x1b[Jhost-a  y\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What a node waits for can be read on a terminal of any width, if it has enough lines; where many nodes leave, each is cut to one.
func TestWaitShowsLongLinesWhole(t *testing.T) {
	line := "MIGRATING  deadline in 3m  2/9 blocks  waits for a peer: fallback:spill: no space left on device"
	for size, want := range map[[2]int]string{
		{120, 24}: "host-a  " + line,
		{60, 24}:  "host-a  MIGRATING  deadline in 3m  2/9 blocks|  waits for a peer: fallback:spill: no space left on device",
		{30, 24}:  "host-a  MIGRATING|  deadline in 3m  2/9 blocks|  waits for a peer:|  fallback:spill: no space|  left on device",
		{30, 4}:   "host-a  MIGRATING  deadline i…",
	} {
		var stderr bytes.Buffer
		w := newWaiter(&stderr, "host-a", "")
		w.size = func() (int, int) { return size[0], size[1] }
		w.draw([]leaving{{node: "host-a", line: line}})
		if got := strings.ReplaceAll(strings.TrimSuffix(stderr.String(), "\n"), "\n", "|"); got != want {
			t.Errorf("%v: got %q, want %q", size, got, want)
		}
	}
}

// With more nodes than lines on the terminal, those that are still leaving are shown: lines that scrolled away cannot be drawn over.
func TestWaitDrawsNoMoreThanTheTerminalHas(t *testing.T) {
	var all []leaving
	for i := range 7 {
		all = append(all, leaving{node: fmt.Sprint("n", i), line: "x", ended: i%2 == 0})
	}
	all[0].verdict = exitIncomplete
	for _, row := range []struct {
		height int
		want   string
	}{
		{8, "n0  x|n1  x|n2  x|n3  x|n4  x|n5  x|n6  x"},
		{7, "n0  x|n1  x|n3  x|n5  x|… and 3 nodes done"},
		{4, "n0  x|n1  x|… 2 nodes more than this window has, and 3 that are done"},
	} {
		var stderr bytes.Buffer
		w := newWaiter(&stderr, "all of them", "")
		w.size = func() (int, int) { return 80, row.height }
		w.draw(all)
		want := strings.ReplaceAll(row.want, "|", "\n") + "\n"
		if got := stderr.String(); got != want {
			t.Errorf("%d lines: got %q, want %q", row.height, got, want)
		}
		stderr.Reset()
		w.draw(all)
		if up := fmt.Sprintf("\x1b[%dA", strings.Count(want, "\n")); !strings.HasPrefix(stderr.String(), up) {
			t.Errorf("%d lines: drawn over with %.8q, want %q", row.height, stderr.String(), up)
		}
	}
}

func TestWaitOutlivesTheCoordinatorsAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr bytes.Buffer
		w := newWaiter(&stderr, "host-a", "")
		looks := 0
		_, err := w.run(t.Context(), func(context.Context) ([]leaving, error) {
			if looks++; looks < 3600 {
				return nil, errAway{errors.New("the coordinator does not answer")}
			}
			return []leaving{{node: "host-a", line: "x", ended: true}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := stderr.String(), "waiting on: the coordinator does not answer\nhost-a  x\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestWaitGivesUpOnAnAgentThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(&bytes.Buffer{}, "this machine", "")
		w.patience = selfPatience
		start := time.Now()
		_, err := w.run(t.Context(), func(context.Context) ([]leaving, error) { return nil, errAway{errors.New("gone")} })
		if took := time.Since(start); err == nil || took < selfPatience || took > selfPatience+show.WatchPace {
			t.Errorf("got %v after %s, want an error after %s and a look", err, took, selfPatience)
		}
	})
}

func TestWaitEndsWithARefusal(t *testing.T) {
	w := newWaiter(&bytes.Buffer{}, "host-a", "")
	refused := notFoundf("no such node")
	if _, err := w.run(t.Context(), func(context.Context) ([]leaving, error) { return nil, refused }); err != refused {
		t.Errorf("got %v, want %v", err, refused)
	}
}

func TestWaitDetachesWhenInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		w := newWaiter(&bytes.Buffer{}, "the decommission of host-a", "lifeboat recommission host-a")
		w.again = "lifeboat decommission host-a --wait"
		_, err := w.run(ctx, func(context.Context) ([]leaving, error) { return []leaving{{node: "host-a"}}, nil })
		const want = "detached: the decommission of host-a goes on; `lifeboat decommission host-a --wait` shows it again, `lifeboat recommission host-a` takes it back"
		if err == nil || err.Error() != want || exitCode(err, true) != exitFailed {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

// The command that a detached wait offers asks the same coordinator, and changes nothing: a timeout in it would undo one that another
// operator gave since.
func TestDetachedOffersALook(t *testing.T) {
	f := newFleet(t, false)
	f.put(t, "nodes.json", `{"nodes": [{"name": "host-a", "state": "DECOMMISSIONING"}, {"name": "host-b", "state": "DECOMMISSIONING"}]}`)
	ctx, cancel := context.WithCancel(t.Context())
	stderr := &interrupter{interrupt: cancel}
	code := run(ctx, []string{"decommission", "host-a", "host-b=10s", "--timeout", "25s", "--wait", "--coordinator", f.coordinator, "--tls-dir", f.tls}, io.Discard, stderr)
	want := fmt.Sprintf("`lifeboat decommission host-a host-b --wait%[1]s` shows it again, `lifeboat recommission host-a host-b%[1]s` takes it back\n",
		" --coordinator "+f.coordinator+" --tls-dir "+f.tls)
	if code != exitFailed || !strings.HasSuffix(stderr.String(), want) {
		t.Errorf("got code %d, %s\nwant %s", code, stderr, want)
	}
}

// interrupter is a terminal at which somebody presses Ctrl-C as soon as something is shown.
type interrupter struct {
	bytes.Buffer
	interrupt func()
}

func (i *interrupter) Write(p []byte) (int, error) {
	i.interrupt()
	return i.Buffer.Write(p)
}

func TestLeavingNode(t *testing.T) {
	manifest := func(lost int64) *api.ManifestSummary {
		return &api.ManifestSummary{Lost: &api.Count{Blocks: lost, Bytes: lost * 1024}}
	}
	for _, c := range []struct {
		name     string
		node     *api.Node
		timedOut bool
		ended    bool
		verdict  int
		line     string
	}{
		{name: "on its way", line: "DECOMMISSIONING/MIGRATING  deadline in 1m20s  3/12 blocks  1.0 MiB/4.0 MiB  1.0 MiB/s  done in 3.0s  1 lost  waits for its blocks",
			node: &api.Node{State: "DECOMMISSIONING", SubState: "MIGRATING", Remaining: durationpb.New(80 * time.Second), Status: &api.Status{Drain: &api.DrainProgress{
				BlocksTotal: 12, BlocksMoved: 3, BlocksLost: 1, BytesTotal: 4 << 20, BytesMoved: 1 << 20, BytesPerSecond: 1 << 20}}}},
		{name: "what there is is not known yet", line: "DECOMMISSIONING/MIGRATING  deadline in 1m20s  3/4 blocks  1.0 MiB/4.0 MiB  1.0 MiB/s  looking for more  waits for its blocks",
			node: &api.Node{State: "DECOMMISSIONING", SubState: "MIGRATING", Remaining: durationpb.New(80 * time.Second), Status: &api.Status{Drain: &api.DrainProgress{
				Phase: "scanning", BlocksTotal: 4, BlocksMoved: 3, BytesTotal: 4 << 20, BytesMoved: 1 << 20, BytesPerSecond: 1 << 20}}}},
		{name: "no peer takes its blocks", line: "DECOMMISSIONING/MIGRATING  3/12 blocks  1.0 MiB/4.0 MiB  waits for a peer, 2 are in trouble: host-c: full: no room for any block that is left",
			node: &api.Node{State: "DECOMMISSIONING", SubState: "MIGRATING", Status: &api.Status{Drain: &api.DrainProgress{Phase: "sending", BlocksTotal: 12, BlocksMoved: 3, BytesTotal: 4 << 20, BytesMoved: 1 << 20,
				Peers: []*api.PeerProgress{{Node: "host-b", Trouble: "busy"}, {Node: "host-c", Blocks: 3, Trouble: "full: no room for any block that is left"}}}}}},
		{name: "nothing is left to take", line: "DECOMMISSIONING/MIGRATING  3/12 blocks  0 B/0 B  9 lost  waits for its blocks",
			node: &api.Node{State: "DECOMMISSIONING", SubState: "MIGRATING", Status: &api.Status{Drain: &api.DrainProgress{Phase: "sending", BlocksTotal: 12, BlocksMoved: 3, BlocksLost: 9}}}},
		{name: "no peer is known that has room", line: "DECOMMISSIONING/MIGRATING  0/12 blocks  0 B/0 B  waits for a peer: none is known that has room",
			node: &api.Node{State: "DECOMMISSIONING", SubState: "MIGRATING", Status: &api.Status{Drain: &api.DrainProgress{Phase: "sending", BlocksTotal: 12}}}},
		{name: "the fallback takes nothing", line: "DECOMMISSIONING/MIGRATING  3/12 blocks  1.0 MiB/4.0 MiB  waits for a peer, 2 are in trouble: fallback:spill: write to /mnt/share/spill/lifeboat: no space left on device: make room there",
			node: &api.Node{State: "DECOMMISSIONING", SubState: "MIGRATING", Status: &api.Status{Drain: &api.DrainProgress{Phase: "sending", BlocksTotal: 12, BlocksMoved: 3, BytesTotal: 4 << 20, BytesMoved: 1 << 20,
				Peers: []*api.PeerProgress{{Node: "host-b", Trouble: "busy"}, {Node: "fallback:spill", Blocks: 3, Trouble: "write to /mnt/share/spill/lifeboat: no space left on device: make room there"}}}}}},
		{name: "a peer is well", line: "DECOMMISSIONING/MIGRATING  3/12 blocks  1.0 MiB/4.0 MiB  waits for its blocks",
			node: &api.Node{State: "DECOMMISSIONING", SubState: "MIGRATING", Status: &api.Status{Drain: &api.DrainProgress{Phase: "sending", BlocksTotal: 12, BlocksMoved: 3, BytesTotal: 4 << 20, BytesMoved: 1 << 20,
				Peers: []*api.PeerProgress{{Node: "host-b", Trouble: "busy"}, {Node: "host-c", Blocks: 3}}}}}},
		{name: "held up", line: "DECOMMISSIONING/WAIT_APP  waits for its apps", node: &api.Node{State: "DECOMMISSIONING", SubState: "WAIT_APP"}},
		{name: "held up by what is known", line: "DECOMMISSIONING/WAIT_WORKLOAD  deadline in 1m20s  waits for workload spark-worker (2 processes), app app-1 (runs on host-b) and 2 more",
			node: &api.Node{State: "DECOMMISSIONING", SubState: "WAIT_WORKLOAD", Remaining: durationpb.New(80 * time.Second),
				WaitsFor: []string{"workload spark-worker (2 processes)", "app app-1 (runs on host-b)", "app app-2 (runs on host-b)", "app app-3 (runs on host-b)"}}},
		{name: "restarts", line: "SHUTDOWN  waits for its return", node: &api.Node{State: "SHUTDOWN", SubState: "NONE"}},
		{name: "done", line: "DECOMMISSIONED", ended: true, node: &api.Node{State: "DECOMMISSIONED", SubState: "DECOMMISSIONED", Manifest: manifest(0)}},
		{name: "done before another beat", line: "DECOMMISSIONED  12/12 blocks  4.0 MiB/4.0 MiB", ended: true,
			node: &api.Node{State: "DECOMMISSIONED", SubState: "DECOMMISSIONED", Manifest: &api.ManifestSummary{Moved: &api.Count{Blocks: 12, Bytes: 4 << 20}},
				Status: &api.Status{Drain: &api.DrainProgress{Phase: "sending", BlocksTotal: 12, BytesTotal: 4 << 20}}}},
		{name: "lost some", line: "DECOMMISSIONED  1 block (1.0 KiB) lost", ended: true, verdict: exitIncomplete, node: &api.Node{State: "DECOMMISSIONED", Manifest: manifest(1)}},
		{name: "timed out before", line: "DECOMMISSIONED  timed out", timedOut: true, ended: true, verdict: exitIncomplete, node: &api.Node{State: "DECOMMISSIONED", Manifest: manifest(0)}},
		{name: "no account", line: "DECOMMISSIONED  ended without a manifest: what became of its blocks is not known", ended: true, verdict: exitIncomplete, node: &api.Node{State: "DECOMMISSIONED"}},
		{name: "silent", line: "LOST  it is LOST: what became of its blocks is not known, and an order waits for its return", ended: true, verdict: exitIncomplete, node: &api.Node{State: "LOST"}},
		{name: "taken back", line: "ACTIVE  it is ACTIVE again: the decommission was taken back", ended: true, verdict: exitFailed,
			node: &api.Node{State: "ACTIVE", Status: &api.Status{Drain: &api.DrainProgress{Phase: "sending", BlocksTotal: 12, BlocksMoved: 3, BlocksLost: 9, BytesPerSecond: 1 << 20}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := leavingNode(c.node, c.timedOut)
			if got.ended != c.ended || got.verdict != c.verdict || got.line != c.line {
				t.Errorf("got ended %t, verdict %d, line %q\nwant ended %t, verdict %d, line %q", got.ended, got.verdict, got.line, c.ended, c.verdict, c.line)
			}
		})
	}
}

func TestLeavingAgent(t *testing.T) {
	const ours = "inc-2"
	at := func(phase, incident, account string, lost int64) *api.AgentStatus {
		s := &api.AgentStatus{Node: "host-a", Status: &api.Status{Drain: &api.DrainProgress{Phase: phase, BlocksLost: lost}}}
		if incident != "" {
			s.Status.Notice = &api.Notice{Incident: incident}
		}
		if account != "" {
			s.Manifest = &api.ManifestSummary{Incident: account, Lost: &api.Count{Blocks: lost}}
		}
		return s
	}
	held := func(s *api.AgentStatus, up ...string) *api.AgentStatus {
		s.WaitsFor = up
		return s
	}
	for _, c := range []struct {
		name    string
		status  *api.AgentStatus
		ended   bool
		verdict int
		tells   string // at the end of its line
	}{
		{"not begun", &api.AgentStatus{Node: "host-a", Status: &api.Status{Notice: &api.Notice{Incident: ours}}}, false, exitDone, "the list of its blocks"},
		{"scanning", at("scanning", ours, "", 0), false, exitDone, "the list of its blocks"},
		{"sending", at("sending", ours, "", 0), false, exitDone, "waits for its blocks"},
		{"held up", held(at("sending", ours, "", 0), "workload spark-worker (2 processes)", "disk /mnt/d1 (does not answer)"), false, exitDone,
			"waits for workload spark-worker (2 processes), disk /mnt/d1 (does not answer)"},
		{"the end of an earlier drain", at("drained", ours, "inc-1", 3), false, exitDone, "the list of its blocks"},
		{"drained", at("drained", ours, ours, 0), true, exitDone, "0 B/0 B"},
		{"drained, account to come", at("drained", ours, "", 3), false, exitDone, "waits for its account"},
		{"drained with losses", at("drained", ours, ours, 3), true, exitIncomplete, "3 blocks (0 B) lost"},
		{"taken back", &api.AgentStatus{Node: "host-a"}, true, exitFailed, "taken back"},
		{"taken back, and its drain winds down", at("sending", "", "", 0), true, exitFailed, "taken back"},
		{"taken back, and its drain has", at("drained", "", "", 3), true, exitFailed, "taken back"},
		{"taken back, and another has begun", at("sending", "inc-3", "", 0), true, exitFailed, "taken back"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := leavingAgent(c.status, ours)
			if got.ended != c.ended || got.verdict != c.verdict || !strings.HasSuffix(got.line, c.tells) {
				t.Errorf("got ended %t, verdict %d, %q, want %t, %d, %q", got.ended, got.verdict, got.line, c.ended, c.verdict, c.tells)
			}
		})
	}
}

// A wait for a drain ends when the coordinator has the manifest, which a script may ask for next, unless no coordinator answers.
func TestTheEndIsWhatTheCoordinatorKnows(t *testing.T) {
	const ours = "inc-2"
	for name, c := range map[string]struct {
		trouble string
		told    time.Duration // after the drain's end
		want    time.Duration
	}{
		"told at once":                    {told: 0, want: 0},
		"told soon":                       {told: time.Second, want: time.Second},
		"told too late":                   {told: time.Hour, want: tellPatience},
		"nobody to tell":                  {trouble: "connection refused", told: time.Hour, want: 0},
		"told by a coordinator that went": {trouble: "connection refused", told: 0, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				drained := time.Now()
				agent := &drainedAgent{status: func() *api.AgentStatus {
					return &api.AgentStatus{Node: "host-a", CoordinatorTrouble: c.trouble, Manifest: &api.ManifestSummary{Incident: ours, Lost: &api.Count{Blocks: 1}},
						ManifestTold: time.Since(drained) >= c.told, Status: &api.Status{Drain: &api.DrainProgress{Phase: "drained", BlocksLost: 1}, Notice: &api.Notice{Incident: ours}}}
				}}
				self := &leavingSelf{agent: agent, incident: ours}
				ended, err := newWaiter(io.Discard, "this machine", "lifeboat cancel").run(t.Context(), self.look)
				if err != nil || ended[0].verdict != exitIncomplete {
					t.Errorf("got %+v, %v, want one that lost something", ended, err)
				}
				if took := time.Since(drained); took < c.want || took > c.want+show.WatchPace {
					t.Errorf("waited %s, want %s", took, c.want)
				}
			})
		})
	}
}

// The wait for an evacuation says if no peer takes its blocks; interrupted, it offers a command that looks at the same agent.
func TestAnEvacuationWaitsForAPeer(t *testing.T) {
	f := newFleet(t, false)
	f.put(t, "agent.json", `{"evacuations": [{"path": "/mnt/d1", "state": "running", "progress": {"phase": "sending", "blocksTotal": "12"}}]}`)
	ctx, cancel := context.WithCancel(t.Context())
	stderr := &interrupter{interrupt: cancel}
	code := run(ctx, []string{"disk", "evacuate", "/mnt/d1", "--wait", "--socket", f.socket}, io.Discard, stderr)
	want := fmt.Sprintf("/mnt/d1  running  0/12 blocks  0 B/0 B  waits for a peer: none is known that has room\n"+
		"lifeboat: detached: the evacuation of /mnt/d1 goes on; `lifeboat disk evacuate /mnt/d1 --wait --socket %[1]s` shows it again, "+
		"`lifeboat disk evacuate /mnt/d1 --cancel --socket %[1]s` takes it back\n", f.socket)
	if code != exitFailed || stderr.String() != want {
		t.Errorf("got code %d, %s\nwant %s", code, stderr, want)
	}
}

// drainedAgent answers only GetStatus.
type drainedAgent struct {
	api.LocalClient
	status func() *api.AgentStatus
}

func (a *drainedAgent) GetStatus(context.Context, *api.GetAgentStatusRequest, ...grpc.CallOption) (*api.AgentStatus, error) {
	return a.status(), nil
}

func (f *fleet) leaving(t *testing.T, names ...string) *leavingNodes {
	t.Helper()
	to := reach{coordinator: f.coordinator, devInsecure: true}
	operator, l, err := to.operator()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &leavingNodes{operator: operator, link: l, names: names}
}

func TestTimeoutIsRemembered(t *testing.T) {
	f := newFleet(t, true)
	fleet := f.leaving(t, "host-a")
	f.put(t, "nodes.json", `{"nodes": [{"name": "host-a", "state": "DECOMMISSIONING", "subState": "TIMEOUT"}]}`)
	if seen, err := fleet.look(t.Context()); err != nil || seen[0].ended {
		t.Fatalf("got %+v, %v, want a node on its way", seen, err)
	}
	f.put(t, "nodes.json", `{"nodes": [{"name": "host-a", "state": "DECOMMISSIONED", "manifest": {}}]}`)
	seen, err := fleet.look(t.Context())
	if err != nil || seen[0].verdict != exitIncomplete {
		t.Errorf("got %+v, %v, want a node that timed out", seen, err)
	}
}

// The coordinator may forget a node that is done while others are still leaving.
func TestWaitOutlivesWhatIsForgotten(t *testing.T) {
	f := newFleet(t, true)
	fleet := f.leaving(t, "host-a", "host-b")
	const b = `{"name": "host-b", "state": "DECOMMISSIONING", "subState": "MIGRATING"}`
	f.put(t, "nodes.json", `{"nodes": [{"name": "host-a", "state": "DECOMMISSIONED", "manifest": {}}, `+b+`]}`)
	if _, err := fleet.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.put(t, "nodes.json", `{"nodes": [`+b+`]}`)
	seen, err := fleet.look(t.Context())
	if err != nil || !seen[0].ended || seen[0].verdict != exitDone || seen[1].ended {
		t.Errorf("got %+v, %v, want one that is done and one that is not", seen, err)
	}
	f.put(t, "nodes.json", `{"nodes": []}`)
	if _, err := fleet.look(t.Context()); exitCode(err, true) != exitNotFound {
		t.Errorf("got %v for a node that vanished before it was done, want exit code %d", err, exitNotFound)
	}
}

// A machine that comes under the name of one that left says nothing of that one.
func TestWaitKnowsAnotherMachineOfTheName(t *testing.T) {
	f := newFleet(t, true)
	fleet := f.leaving(t, "host-a", "host-b")
	f.put(t, "nodes.json", `{"nodes": [{"name": "host-a", "id": "node-1", "state": "DECOMMISSIONED", "manifest": {}}, {"name": "host-b", "id": "node-2", "state": "DECOMMISSIONING"}]}`)
	if _, err := fleet.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.put(t, "nodes.json", `{"nodes": [{"name": "host-a", "id": "node-3", "state": "ACTIVE"}, {"name": "host-b", "id": "node-4", "state": "ACTIVE"}]}`)
	for range 2 {
		seen, err := fleet.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if a := seen[0]; !a.ended || a.verdict != exitDone {
			t.Errorf("got %+v, want one that was done before", a)
		}
		if b := seen[1]; !b.ended || b.verdict != exitIncomplete || b.why != replaced {
			t.Errorf("got %+v, want one of which nothing is known", b)
		}
	}
}

func TestNodeTimes(t *testing.T) {
	nodes, own, err := nodeTimes("drain", []string{"a=90s", "b", "c=none", "d=0"})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(nodes, " "); got != "a b c d" || len(own) != 3 {
		t.Errorf("got nodes %q and %d times, want a b c d and 3", got, len(own))
	}
	for name, want := range map[string]time.Duration{"a": 90 * time.Second, "c": -time.Second, "d": 0} {
		if got := own[name]; got == nil || got.AsDuration() != want {
			t.Errorf("node %s: got %v, want %s", name, got, want)
		}
	}
	for args, want := range map[string]string{"a=600": "want a time such as 90s", "a=": "want a time", "a=-1s": "want a time", "a b a=1s": "a is named twice"} {
		if _, _, err := nodeTimes("drain", strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) || exitCode(err, true) != exitUsage {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}

// countedOperator has nodes that leave, and counts how often it is asked.
type countedOperator struct {
	api.OperatorClient
	nodes []*api.Node
	asked int
}

func (o *countedOperator) ListNodes(context.Context, *api.ListNodesRequest, ...grpc.CallOption) (*api.ListNodesReply, error) {
	o.asked++
	return &api.ListNodesReply{Nodes: o.nodes}, nil
}

func (o *countedOperator) GetNode(_ context.Context, r *api.GetNodeRequest, _ ...grpc.CallOption) (*api.Node, error) {
	o.asked++
	for _, n := range o.nodes {
		if n.Name == r.Node {
			return n, nil
		}
	}
	return nil, status.Error(codes.NotFound, "unknown")
}

// A wait for 500 nodes makes one call each second, not 500.
func TestManyAreWaitedForWithOneQuestion(t *testing.T) {
	o := &countedOperator{}
	fleet := &leavingNodes{operator: o, link: &link{}}
	for i := range 500 {
		name := fmt.Sprint("host-", i)
		fleet.names = append(fleet.names, name)
		o.nodes = append(o.nodes, &api.Node{Name: name, State: "DECOMMISSIONING", SubState: "MIGRATING"})
	}
	if seen, err := fleet.look(t.Context()); err != nil || len(seen) != 500 || seen[7].ended {
		t.Errorf("got %d, %v, want all on their way", len(seen), err)
	}
	if o.asked != 1 {
		t.Errorf("asked %d times, want once", o.asked)
	}
	o.nodes = o.nodes[1:]
	if _, err := fleet.look(t.Context()); err == nil {
		t.Errorf("one is not known any more: got %v", err)
	}
}
