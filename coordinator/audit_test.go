package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// audit reads the records after an index as an operator sees them.
func (v *town) audit(after uint64, node string) (records []*api.AuditRecord) {
	v.Helper()
	stream, err := v.operator().ListAudit(v.Context(), &api.ListAuditRequest{After: after, Node: node})
	if err != nil {
		v.Fatal(err)
	}
	for {
		reply, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return records
		}
		if err != nil {
			v.Fatal(err)
		}
		records = append(records, reply.Records...)
	}
}

// Every call that changes something leaves one record with its outcome, refused calls too, and whatever follows. A restart loses none.
func TestEveryCallLeavesOneRecord(t *testing.T) {
	excludes := filepath.Join(t.TempDir(), "exclude")
	lines := func(text string) {
		if err := os.WriteFile(excludes, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lines("")
	inTown(t, func(v *town) {
		v.stop()
		v.cfg.Hosts.Exclude = excludes
		v.start()
		for _, name := range []string{"a", "b"} {
			v.agent(name).register()
		}
		op := v.operator()
		decommission := func(r *api.DecommissionRequest) func() error {
			return func() error { _, err := op.Decommission(v.Context(), r); return err }
		}
		for _, s := range []struct {
			name                   string
			do                     func() error
			asked, outcome, events string // asked "": no record
			nodes                  []string
			detail                 map[string]string
		}{
			{"decommission", decommission(&api.DecommissionRequest{Nodes: []string{"a"}, Timeout: durationpb.New(time.Hour), Reason: "disks"}),
				"decommission", "done", registry.EventDecommissioning, []string{"a"}, map[string]string{"timeout": "1h0m0s"}},
			{"again, which changes nothing", decommission(&api.DecommissionRequest{Nodes: []string{"a"}, Timeout: durationpb.New(time.Hour), Reason: "disks"}),
				"decommission", "done", "", []string{"a"}, map[string]string{"timeout": "1h0m0s"}},
			{"of a stranger", decommission(&api.DecommissionRequest{Nodes: []string{"a", "zz"}, Reason: "disks"}),
				"decommission", "refused: node zz: not known here", "", []string{"a", "zz"}, nil},
			{"of nobody", decommission(&api.DecommissionRequest{Reason: "disks"}), "", "", "", nil, nil},
			{"recommission", func() error {
				_, err := op.Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}, Reason: "disks"})
				return err
			}, "recommission", "done", registry.EventRecommissioned, []string{"a"}, nil},
			{"refresh of a good file", func() error {
				lines("b\n")
				_, err := op.RefreshNodes(v.Context(), &api.RefreshNodesRequest{Graceful: true, Reason: "disks"})
				return err
			}, "refresh-nodes", "done", registry.EventHosts + " " + registry.EventDecommissioning, []string{"b"},
				map[string]string{"graceful": "yes", "exclude": excludes, "excluded": "1"}},
			{"refresh of a bad one", func() error {
				lines("b\x00c\n")
				_, err := op.RefreshNodes(v.Context(), &api.RefreshNodesRequest{Reason: "disks"})
				return err
			}, "refresh-nodes", "refused: " + excludes, registry.EventHostsRefused, nil, nil},
			{"recommission against the file", func() error {
				_, err := op.Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"b"}, Reason: "disks"})
				return err
			}, "recommission", "refused: node b: kept out", "", []string{"b"}, nil},
			{"members of one", func() error {
				_, err := op.ChangeMembers(v.Context(), &api.ChangeMembersRequest{Remove: []string{"c2"}, Reason: "disks"})
				return err
			}, "raft remove", "refused: there is one coordinator only", "", nil, map[string]string{"remove": "c2"}},
			{"transfer by one", func() error {
				_, err := op.TransferLeadership(v.Context(), &api.TransferLeadershipRequest{To: "c2", Reason: "disks"})
				return err
			}, "raft transfer", "refused: there is one coordinator only", "", nil, map[string]string{"to": "c2"}},
			{"snapshot", func() error {
				stream, err := op.SaveSnapshot(v.Context(), &api.SaveSnapshotRequest{})
				for err == nil {
					_, err = stream.Recv()
				}
				return err
			}, "raft snapshot", "done", "", nil, nil},
		} {
			before := v.audit(0, "")
			err := s.do()
			got := v.audit(uint64(len(before)), "")
			if s.asked == "" {
				if len(got) != 0 {
					v.Errorf("%s: got %v, want no record", s.name, got)
				}
				continue
			}
			if len(got) != 1 {
				v.Fatalf("%s: got %d records (%v), want 1", s.name, len(got), err)
			}
			r := got[0]
			if r.Who != "operator:eve" || r.From == "" || r.Asked != s.asked || !strings.HasPrefix(r.Outcome, s.outcome) || !slices.Equal(r.Nodes, s.nodes) ||
				r.Reason != "disks" && s.asked != "raft snapshot" || !reflect.DeepEqual(r.Detail, s.detail) || time.Until(r.Time.AsTime()).Abs() > time.Second {
				v.Errorf("%s: got %v", s.name, r)
			}
			if told := v.told(r); told != s.events {
				v.Errorf("%s: got events %q, want %q", s.name, told, s.events)
			}
		}
		all := fmt.Sprint(v.audit(0, ""))
		v.restart()
		if got := fmt.Sprint(v.audit(0, "")); got != all {
			v.Errorf("after a restart: got %s, want %s", got, all)
		}
		for _, r := range v.audit(0, "b") {
			if !slices.Contains(r.Nodes, "b") {
				v.Errorf("of b: got %v", r)
			}
		}
		if n := len(v.audit(0, "b")); n != 2 {
			v.Errorf("got %d records of b, want 2", n)
		}
	})
}

// told returns the events of a record, and checks that each names the record's operator.
func (v *town) told(r *api.AuditRecord) string {
	v.Helper()
	if r.FirstEvent == 0 {
		return ""
	}
	stream, err := v.operator().Events(v.Context(), &api.EventsRequest{After: r.FirstEvent - 1})
	if err != nil {
		v.Fatal(err)
	}
	var types []string
	for {
		e, err := stream.Recv()
		if err != nil || e.Index > r.LastEvent {
			return strings.Join(types, " ")
		}
		if types = append(types, e.Type); e.Data["by"] != r.Who {
			v.Errorf("event %v: got by %q, want %q", e, e.Data["by"], r.Who)
		}
	}
}

func TestWhoMayReadTheAudit(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		v.order(time.Hour, "a")
		stream, err := api.NewOperatorClient(v.conn(certs.RoleNode, "a")).ListAudit(v.Context(), &api.ListAuditRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		v.refused(err, codes.PermissionDenied, "use an operator's certificate")
		for _, r := range []certs.Role{certs.RoleNode, certs.RoleApp} {
			if code, body := v.get("/audit", &certs.Name{Role: r, Name: "a"}); code != http.StatusForbidden {
				v.Errorf("as %s: got %d %s, want 403", r, code, body)
			}
		}
		as := certs.Name{Role: certs.RoleOperator, Name: "eve"}
		code, body := v.get("/audit?node=a", &as)
		var got []api.AuditJSON
		if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK || len(got) != 1 || got[0].Asked != "decommission" || got[0].Reason != "kernel" {
			v.Errorf("got %d %s (%v), want the order", code, body, err)
		}
		for path, want := range map[string]int{"/audit?after=1": http.StatusOK, "/audit?node=b": http.StatusOK, "/audit?after=x": http.StatusBadRequest} {
			if code, body := v.get(path, &as); code != want || want == http.StatusOK && body != "[]\n" {
				v.Errorf("%s: got %d %s, want %d", path, code, body, want)
			}
		}
	})
}

// A call that is repeated after a failover is decided once: later decisions of others stand.
func TestRepeatedCallIsDecidedOnce(t *testing.T) {
	inTown(t, func(v *town) {
		v.agent("a").register()
		named := func(name string) context.Context {
			return metadata.AppendToOutgoingContext(v.Context(), api.CallHeader, name)
		}
		op := v.operator()
		order := &api.DecommissionRequest{Nodes: []string{"a"}, Timeout: durationpb.New(time.Hour)}
		for range 2 {
			if _, err := op.Decommission(named("one"), order); err != nil {
				v.Fatal(err)
			}
		}
		if _, err := op.Recommission(named("two"), &api.RecommissionRequest{Nodes: []string{"a"}}); err != nil {
			v.Fatal(err)
		}
		if _, err := op.Decommission(named("one"), order); err != nil {
			v.Fatal(err)
		}
		v.is("a", registry.Active)
		if n := len(v.audit(0, "")); n != 2 {
			v.Errorf("got %d records, want 2", n)
		}
		// The caller chooses the name of a call: another request under the same name is not hidden by it.
		if _, err := op.Decommission(named("one"), &api.DecommissionRequest{Nodes: []string{"a"}}); err != nil {
			v.Fatal(err)
		}
		v.is("a", registry.Decommissioning)
		if n := len(v.audit(0, "")); n != 3 {
			v.Errorf("got %d records, want 3", n)
		}
	})
}

// A call whose first answer was lost is answered like the first time, though what it asks for is so already. A token that it makes is another
// one: the secret of the first is lost.
func TestRepeatedCallIsAnswered(t *testing.T) {
	inWalledTown(t, func(v *town) {
		op := v.operator()
		spare, err := certs.ParseToken(v.token(&api.CreateTokenRequest{}))
		if err != nil {
			v.Fatal(err)
		}
		if _, err := op.EndApps(v.Context(), &api.EndAppsRequest{Apps: []string{"etl"}}); err != nil {
			v.Fatal(err)
		}
		p := v.crowd("p", 10)
		v.beats(300, p[5:])
		if v.brakes() == "" {
			v.Fatal("no brake holds")
		}
		var tokens []string
		for range 2 {
			ctx := metadata.AppendToOutgoingContext(v.Context(), api.CallHeader, "one")
			made, err1 := op.CreateToken(ctx, &api.CreateTokenRequest{Name: "host-a"})
			_, err2 := op.RevokeToken(ctx, &api.RevokeTokenRequest{Id: spare.ID})
			_, err3 := op.EndApps(ctx, &api.EndAppsRequest{Apps: []string{"etl"}, Undo: true})
			_, err4 := op.ReleaseBrake(ctx, &api.ReleaseBrakeRequest{})
			if err := errors.Join(err1, err2, err3, err4); err != nil {
				v.Fatal(err)
			}
			tokens = append(tokens, made.Token)
		}
		if err := v.joins(v.TempDir(), "host-a", tokens[1]); err != nil {
			v.Errorf("the token that the operator was given opens nothing: %v", err)
		}
	})
}

// A caller that is refused asks again and again, and is logged once a minute.
func TestDenialsAreCounted(t *testing.T) {
	var d denials
	var told []int
	for second := range 121 {
		if n := d.count("node a /Decommission", t0.Add(time.Duration(second)*time.Second)); n > 0 {
			told = append(told, n)
		}
	}
	if want := []int{1, 60, 60}; !slices.Equal(told, want) {
		t.Errorf("got %v, want %v", told, want)
	}
	for i := range 3 * denialsKept {
		d.count(fmt.Sprint(i), t0)
	}
	if len(d.seen) > denialsKept {
		t.Errorf("got %d callers, want %d at most", len(d.seen), denialsKept)
	}
}

// The next leader completes the record of a call that a leader began and did not live to end.
func TestNextLeaderSettles(t *testing.T) {
	inTown(t, func(v *town) {
		v.stop()
		l := openTestLedger(v.T, v.cfg.DataDir, slog.New(slog.DiscardHandler))
		for _, what := range []string{"raft transfer", "raft add"} {
			if _, err := l.do(registry.Command{Do: registry.DoRecord, Asked: &registry.Asking{Call: what, Who: "operator:eve", Asked: what, Outcome: registry.OutcomeBegun}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		v.start()
		synctest.Wait()
		got := v.audit(0, "")
		if len(got) != 2 || got[0].Outcome != "done" || got[0].Detail["leader"] != "c" || !strings.HasPrefix(got[1].Outcome, "failed: not known") {
			t.Errorf("got %v", got)
		}
	})
}

// The log line of a request names its nodes or machines, even if the request makes no sense: a count would not say which.
func TestLogSaysWhomAnOperatorNamed(t *testing.T) {
	inTown(t, func(v *town) {
		var log bytes.Buffer // read once the coordinator has stopped
		v.log = slog.New(slog.NewTextHandler(&log, nil))
		v.restart()
		v.agent("a").register()
		v.order(time.Hour, "a")
		v.operator().Decommission(v.Context(), &api.DecommissionRequest{Nodes: []string{"b", "b"}})
		v.operator().ChangeMachines(v.Context(), &api.ChangeMachinesRequest{Machines: []*api.Machine{{Hostname: "h", Ip: "10.0.0.3"}}})
		v.stop()
		for _, want := range []string{
			`msg="an operator asked" who=operator:eve from=pipe asked=decommission nodes=1 node=a timeout=1h0m0s`,
			`makes no sense" who=operator:eve from=pipe asked=decommission nodes=2 node="b b" err=`,
			`asked="maintenance down" nodes=0 machines="h (10.0.0.3)"`,
		} {
			if !strings.Contains(log.String(), want) {
				v.Errorf("the log does not have %s", want)
			}
		}
		v.start()
	})
}
