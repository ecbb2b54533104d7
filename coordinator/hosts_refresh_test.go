package coordinator

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// inGuardedTown has host files in and out: the first names a and b, the second none.
func inGuardedTown(t *testing.T, tell func(v *town, in, out string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
		put(t, in, "a b c")
		put(t, out, "# nobody")
		cfg := Default()
		cfg.Name, cfg.DataDir, cfg.Hosts = "c", t.TempDir(), hosts.Files{Include: in, Exclude: out}
		v := &town{T: t, cfg: cfg}
		v.start()
		defer func() { v.stop() }()
		tell(v, in, out)
	})
}

// refresh calls RefreshNodes, gracefully unless seconds is negative, and returns the reply as "a:decommission b:".
func (v *town) refresh(seconds int) string {
	v.Helper()
	r := &api.RefreshNodesRequest{}
	if seconds >= 0 {
		r.Graceful, r.Timeout = true, durationpb.New(time.Duration(seconds)*time.Second)
	}
	reply, err := v.operator().RefreshNodes(v.Context(), r)
	if err != nil {
		v.Fatal(err)
	}
	var words []string
	for _, n := range reply.Nodes {
		words = append(words, n.Node.Name+":"+n.Action)
	}
	return strings.Join(words, " ")
}

func (v *town) trouble() string {
	v.Helper()
	s, err := v.operator().GetStatus(v.Context(), &api.GetStatusRequest{})
	if err != nil {
		v.Fatal(err)
	}
	return s.GetHosts().GetTrouble()
}

func (a *agent) tryRegister() error {
	_, err := a.Register(a.Context(), &api.RegisterRequest{Node: a.name, Incarnation: a.incarnation, PeerAddress: a.name + ":7412", Status: a.status})
	return err
}

func TestRefreshLetsNodesLeaveAndComeBack(t *testing.T) {
	inGuardedTown(t, func(v *town, in, out string) {
		a, b := v.agent("a"), v.agent("b")
		a.register()
		b.register()
		v.refused(v.agent("z").tryRegister(), codes.FailedPrecondition, "node z: kept out by the host files: not included by "+in)

		put(v.T, out, "<hosts><host><name>a</name><timeout>60</timeout></host><host><name>q</name></host></hosts>")
		if got := v.refresh(300); got != "a:decommission" {
			v.Errorf("got %q", got)
		}
		if got := a.beat().Directive; got.GetRemaining().AsDuration() != time.Minute || got.Reason != "excluded by "+out {
			v.Errorf("got directive %v", got)
		}
		if got := v.refresh(500); got != "a:" {
			v.Errorf("got %q, want a node that is leaving already", got)
		}
		put(v.T, out, "a")
		if got := v.refresh(30); got != "a:timeout" {
			v.Errorf("got %q", got)
		}
		_, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}})
		v.refused(err, codes.FailedPrecondition, "excluded by "+out+": change the file, then lifeboat refresh-nodes")

		put(v.T, out, "# nobody")
		if got := v.refresh(30); got != "a:recommission" {
			v.Errorf("got %q", got)
		}
		v.is("a", registry.Active)
		if a.beat().Directive != nil {
			v.Error("the wish stands")
		}

		put(v.T, out, "a b")
		if got := v.refresh(-1); got != "a:force b:force" {
			v.Errorf("got %q", got)
		}
		v.is("a", registry.Decommissioned)
		if d := a.beat().Directive; d.GetRemaining() == nil || d.Remaining.AsDuration() > 0 {
			v.Errorf("got directive %v, want one that is due", d)
		}
		v.refused(a.tryRegister(), codes.FailedPrecondition, "excluded by "+out)
		put(v.T, out, "b")
		if got := v.refresh(-1); got != "a:recommission" {
			v.Errorf("got %q", got)
		}
		v.is("a", registry.Decommissioned)
		a.beat() // it is told to register, and does
		v.is("a", registry.Active)
		v.is("b", registry.Decommissioned)
	})
}

func TestBrokenFileChangesNothing(t *testing.T) {
	inGuardedTown(t, func(v *town, in, out string) {
		a := v.agent("a")
		a.register()
		put(v.T, out, "b")
		v.refresh(60)
		put(v.T, out, "a\nb,c\n")
		for range 2 {
			_, err := v.operator().RefreshNodes(v.Context(), &api.RefreshNodesRequest{})
			v.refused(err, codes.FailedPrecondition, "refused: "+out+`:2: host "b,c": commas`)
		}
		v.is("a", registry.Active)
		for range 2 {
			if got := v.trouble(); !strings.Contains(got, out+":2:") {
				v.Errorf("got trouble %q", got)
			}
			v.refused(v.agent("b").tryRegister(), codes.FailedPrecondition, "excluded by "+out)
			v.is("a", registry.Active)
			v.restart()
		}
		if _, text := v.get("/metrics", nil); !strings.Contains(text, "lifeboat_coordinator_hosts_stale 1") {
			v.Error("no metric tells of it")
		}
		refusals := 0
		stream, err := v.operator().Events(v.Context(), &api.EventsRequest{})
		for err == nil {
			var e *api.Event
			if e, err = stream.Recv(); e.GetType() == registry.EventHostsRefused && strings.Contains(e.Data["reason"], out+":2:") {
				refusals++
			}
		}
		if refusals != 1 {
			v.Errorf("got %d events of the refusal, want 1: the same again is no news", refusals)
		}
	})
}

func TestRestartIsNoOrder(t *testing.T) {
	inGuardedTown(t, func(v *town, in, out string) {
		a := v.agent("a")
		a.register()
		if v.trouble() != "" {
			v.Errorf("got %q", v.trouble())
		}
		put(v.T, out, "a")
		v.restart()
		a.beat()
		v.is("a", registry.Active)
		if got := v.trouble(); !strings.Contains(got, "have changed since") {
			v.Errorf("got trouble %q", got)
		}
		if got := v.refresh(60); got != "a:decommission" || v.trouble() != "" {
			v.Errorf("got %q, trouble %q", got, v.trouble())
		}
		time.Sleep(20 * time.Second)
		v.restart()
		if d := a.beat().Directive; d.GetRemaining().AsDuration() > 40*time.Second || d.GetRemaining().AsDuration() < 35*time.Second {
			v.Errorf("got directive %v after a restart, want what was left of it", d)
		}
		// Changed settings are an order too.
		v.cfg.Hosts = hosts.Files{}
		v.restart()
		a.beat()
		v.is("a", registry.Active)
		v.agent("z").register()
	})
}

func TestFirstStartNeedsGoodFiles(t *testing.T) {
	cfg := Default()
	cfg.DataDir, cfg.Hosts = t.TempDir(), hosts.Files{Include: filepath.Join(t.TempDir(), "none")}
	f := opened(t, cfg)
	if err := f.takeOver(t.Context(), f.ledger.term()); err == nil || !strings.Contains(err.Error(), "none: no such file") {
		t.Errorf("got %v: who may join?", err)
	}
}

func TestNewSettingsWithBadFilesKeepTheLists(t *testing.T) {
	inGuardedTown(t, func(v *town, in, out string) {
		put(v.T, out, "a")
		v.refresh(60)
		v.cfg.Hosts.Exclude = out + ".xml"
		v.restart()
		v.refused(v.agent("a").tryRegister(), codes.FailedPrecondition, "excluded by "+out)
		if got := v.trouble(); !strings.Contains(got, "refused at") || !strings.Contains(got, "out.xml: no such file") {
			v.Errorf("got trouble %q", got)
		}
	})
}

func TestRefreshIsUsedRightly(t *testing.T) {
	inTown(t, func(v *town) {
		_, err := v.operator().RefreshNodes(v.Context(), &api.RefreshNodesRequest{})
		v.refused(err, codes.FailedPrecondition, "there are no host files")
		_, err = v.operator().RefreshNodes(v.Context(), &api.RefreshNodesRequest{Timeout: durationpb.New(1)})
		v.refused(err, codes.InvalidArgument, "without graceful")
		_, err = api.NewOperatorClient(v.conn(certs.RoleNode, "a")).RefreshNodes(v.Context(), &api.RefreshNodesRequest{})
		v.refused(err, codes.PermissionDenied, "operator's certificate")
	})
}

// An excluded agent asks every few seconds, for ever: that must fill neither raft's log nor the log file.
func TestRefusalsCostNoWrites(t *testing.T) {
	inGuardedTown(t, func(v *town, in, out string) {
		z := v.agent("z")
		before, _ := v.operator().GetStatus(v.Context(), &api.GetStatusRequest{})
		for range 50 {
			if z.tryRegister() == nil {
				v.Fatal("it was let in")
			}
		}
		after, _ := v.operator().GetStatus(v.Context(), &api.GetStatusRequest{})
		if before.LastIndex != after.LastIndex {
			v.Errorf("got %d events of refusals", after.LastIndex-before.LastIndex)
		}
		if _, text := v.get("/metrics", nil); !strings.Contains(text, "lifeboat_coordinator_registrations_refused_total 50") {
			v.Error("no metric counts them")
		}
	})
}

func TestMaintenanceKeepsBlocksAway(t *testing.T) {
	inGuardedTown(t, func(v *town, in, out string) {
		ends := time.Now().Add(time.Hour)
		a, b := v.agent("a"), v.agent("b")
		a.register()
		b.register()
		a.live(15)
		b.beat()
		peers := func() int { a.version = 0; return len(a.beat().Peers) }
		if got := peers(); got != 1 {
			v.Fatalf("got %d peers, want b", got)
		}
		put(v.T, out, `[{"hostName": "b", "adminState": "IN_MAINTENANCE", "maintenanceExpireTimeInMS": `+strconv.FormatInt(ends.UnixMilli(), 10)+`}]`)
		if got := v.refresh(60); got != "" {
			v.Errorf("got %q, want nothing done", got)
		}
		time.Sleep(time.Second)
		if got := peers(); got != 0 {
			v.Errorf("got %d peers, want none: b is under maintenance", got)
		}
		if n := v.seen("b"); n.Maintenance != "DOWN" || n.Schedulable || n.State != "ACTIVE" {
			v.Errorf("got %v", n)
		}
		for time.Now().Before(ends.Add(time.Second)) {
			time.Sleep(10 * time.Second)
			a.beat()
			b.beat()
		}
		if got := peers(); got != 1 || v.seen("b").Maintenance != "UP" {
			v.Errorf("got %d peers, want b: its maintenance has ended by itself", got)
		}
	})
}

// A host file on a disk that hangs costs one goroutine, not one for each request.
func TestHungFileIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHostFiles(Config{Hosts: hosts.Files{Exclude: "/x"}}, nil, nil, nil, nil)
		h.reading <- struct{}{} // a read is under way, and does not end
		began := time.Now()
		if _, err := h.read(nil); err == nil || !strings.Contains(err.Error(), "does its disk hang?") || time.Since(began) != readPatience {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
		<-h.reading
		if _, err := h.read(nil); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("got %v, want a reading that was tried", err)
		}
	})
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
