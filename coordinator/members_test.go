package coordinator

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

func TestMembersAfter(t *testing.T) {
	were := members(peersNamed(3)).Servers
	add := func(i ...int) (all []*api.NewMember) {
		for _, n := range i {
			all = append(all, &api.NewMember{Name: fmt.Sprintf("c%d", n), Address: fmt.Sprintf("10.0.0.%d:7411", n)})
		}
		return all
	}
	for _, s := range []struct {
		name string
		r    *api.ChangeMembersRequest
		want string // names, or words of the refusal
	}{
		{"two more", &api.ChangeMembersRequest{Add: add(4, 5)}, "c1 c2 c3 c4 c5"},
		{"one replaced", &api.ChangeMembersRequest{Add: add(4), Remove: []string{"c2"}}, "c1 c3 c4"},
		{"two fewer", &api.ChangeMembersRequest{Remove: []string{"c2", "c3"}}, "c1"},
		{"done already", &api.ChangeMembersRequest{Add: add(3), Remove: []string{"c9"}}, "c1 c2 c3"},
		{"moved", &api.ChangeMembersRequest{Add: []*api.NewMember{{Name: "c3", Address: "10.0.0.33:7411"}}}, "c1 c2 c3"},
		{"one more", &api.ChangeMembersRequest{Add: add(4)}, "4 survive no more failures than 3"},
		{"one fewer", &api.ChangeMembersRequest{Remove: []string{"c1"}}, "2 survive no more failures than 1"},
		{"nobody", &api.ChangeMembersRequest{Remove: []string{"c1", "c2", "c3"}}, "no coordinator"},
		{"too many", &api.ChangeMembersRequest{Add: add(4, 5, 6, 7, 8, 9)}, "at most 7"},
		{"another's address", &api.ChangeMembersRequest{Add: []*api.NewMember{{Name: "c4", Address: "10.0.0.1:7411"}}}, "is c1's"},
		{"no address", &api.ChangeMembersRequest{Add: []*api.NewMember{{Name: "c4", Address: "c4"}}}, "must be host:port"},
		{"no port of IPv6", &api.ChangeMembersRequest{Add: []*api.NewMember{{Name: "c3", Address: "fd00::3"}}}, "must be host:port"},
		{"no such port", &api.ChangeMembersRequest{Add: []*api.NewMember{{Name: "c3", Address: "10.0.0.3:74111"}}}, "must be host:port"},
		{"port 0", &api.ChangeMembersRequest{Add: []*api.NewMember{{Name: "c3", Address: "10.0.0.3:0"}}}, "must be host:port"},
		{"any address", &api.ChangeMembersRequest{Add: []*api.NewMember{{Name: "c3", Address: "0.0.0.0:7411"}}}, "must name one machine"},
		{"IPv6", &api.ChangeMembersRequest{Add: []*api.NewMember{{Name: "c3", Address: "[fd00::3]:7411"}}}, "c1 c2 c3"},
		{"no name", &api.ChangeMembersRequest{Add: []*api.NewMember{{Name: "c/4", Address: "c4:1"}}}, "name must be"},
	} {
		will, err := membersAfter(were, s.r)
		got := fmt.Sprint(err)
		if err == nil {
			var names []string
			for _, m := range will {
				names = append(names, string(m.ID))
			}
			got = strings.Join(names, " ")
		}
		if err == nil && got != s.want || !strings.Contains(got, s.want) {
			t.Errorf("%s: got %s, want %s", s.name, got, s.want)
		}
	}
}

// A mistyped name is refused as no member; a name that an earlier try of the call has removed already, or replaced, is not.
func TestOnlyMembersAreRemoved(t *testing.T) {
	were := members(peersNamed(5)).Servers
	for _, s := range []struct {
		r    *api.ChangeMembersRequest
		want codes.Code
	}{
		{&api.ChangeMembersRequest{Remove: []string{"c9"}}, codes.NotFound},
		{&api.ChangeMembersRequest{Remove: []string{"c4", "c5", "c9"}}, codes.NotFound},
		{&api.ChangeMembersRequest{Remove: []string{"c4", "c5"}}, codes.OK},
		{&api.ChangeMembersRequest{Remove: []string{"c9"}, Add: []*api.NewMember{{Name: "c4", Address: "10.0.0.4:7411"}}}, codes.OK},
	} {
		if err := checkRemoved(were, s.r); status.Code(err) != s.want {
			t.Errorf("remove %v: got %v, want %s", s.r.Remove, err, s.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		n := &auditor{ledger: openTestLedger(t, t.TempDir(), slog.New(slog.DiscardHandler))}
		defer n.ledger.Close()
		call := &audited{Asking: registry.Asking{Call: "1", Who: "operator:eve", Asked: "raft remove"}}
		ctx := context.WithValue(t.Context(), auditedKey{}, call)
		if n.repeats(ctx) {
			t.Error("the first call is taken for its own repetition")
		}
		begun := call.Asking
		begun.Outcome = registry.OutcomeBegun
		if _, err := n.ledger.do(registry.Command{Do: registry.DoRecord, Asked: &begun}); err != nil {
			t.Fatal(err)
		}
		if !n.repeats(ctx) {
			t.Error("a call that a former leader began is taken for a new one")
		}
	})
}

func peersNamed(n int) (peers []Peer) {
	for i := range n {
		peers = append(peers, Peer{fmt.Sprintf("c%d", i+1), fmt.Sprintf("10.0.0.%d:7411", i+1)})
	}
	return peers
}

// A coordinator that was alone keeps its fleet when it is given peers, if none of them can outvote it; and it does not forget them when they
// are left out of its settings.
func TestFromOneToThree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
		l := openTestLedger(t, dir, log)
		if _, err := l.do(registration("a")); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		open := func(own string) (*ledger, error) {
			id := certs.Dev(certs.Name{Role: certs.RoleCoordinator, Name: own})
			return openLedger(ledgerConfig{dir: dir, own: own, peers: peersNamed(3), election: time.Second, log: log, streams: newStreams(id, own+":1", nowhere)})
		}
		if _, err := open("c2"); err == nil || !strings.Contains(err.Error(), "put this coordinator first") {
			t.Errorf("got %v, want to be told to put it first", err)
		}
		l, err := open("c1")
		if err != nil {
			t.Fatal(err)
		}
		if got := len(l.servers()); got != 3 {
			t.Errorf("got %d members, want 3", got)
		}
		l.view(func(m *registry.Registry) {
			if m.Nodes["a"].State != registry.Active {
				t.Errorf("the node is not in the log that was brought along: %v", m.Nodes)
			}
		})
		if _, err := l.lead(); err == nil {
			t.Error("it answers for the fleet, alone of three")
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := tryLedger(t, dir, log); err == nil || !strings.Contains(err.Error(), "the log of 3 coordinators") {
			t.Errorf("got %v, want to be told of the others", err)
		}
	})
}

// A coordinator that is no member says so to callers, and not that there will be a leader in a second.
func TestNoMemberSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		says := func(own, dir, want string) {
			t.Helper()
			peers := append(peersNamed(3), Peer{"c4", "10.0.0.4:7411"}, Peer{"c5", "10.0.0.5:7411"})
			id := certs.Dev(certs.Name{Role: certs.RoleCoordinator, Name: own})
			l, err := openLedger(ledgerConfig{dir: dir, own: own, peers: peers, election: time.Second, log: slog.New(slog.DiscardHandler), streams: newStreams(id, own+":1", nowhere)})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			log.Reset()
			f := &fleet{cfg: Config{Name: own}, ledger: l, log: slog.New(slog.NewTextHandler(&log, nil))}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := f.ledger.noteTurns(ctx, f.log); err != nil {
				t.Fatal(err)
			}
			ready := httptest.NewRecorder()
			(&web{fleet: f}).ready(ready, nil)
			page := httptest.NewRecorder()
			(&web{fleet: f}).turnAway(page, httptest.NewRequest(http.MethodGet, "/", nil))
			if page.Header().Get("Refresh") == "" {
				t.Errorf("a browser that asks %s for the page is left with %s", own, page.Body)
			}
			call := status.Convert(gate{own: own, ledger: l}.redirect(errFollows)).Message()
			for where, got := range map[string]string{"readyz": ready.Body.String(), "call": call, "page": page.Body.String()} {
				if !strings.Contains(got, want) {
					t.Errorf("%s of %s: got %q, want %q in it", where, own, got, want)
				}
			}
			if got := log.String(); strings.Contains(got, "no member") != strings.HasPrefix(want, "this coordinator") {
				t.Errorf("the log of %s: %q", own, got)
			}
		}
		dir := t.TempDir()
		says("c4", dir, "this coordinator is in no fleet yet")
		c1 := t.TempDir() // its members are c1, c2 and c3
		id := certs.Dev(certs.Name{Role: certs.RoleCoordinator, Name: "c1"})
		l, err := openLedger(ledgerConfig{dir: c1, own: "c1", peers: peersNamed(3), election: time.Second, log: slog.New(slog.DiscardHandler), streams: newStreams(id, "c1:1", nowhere)})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		says("c2", c1, "no leader")
		says("c4", c1, "this coordinator was removed")
	})
}

func nowhere(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }

func TestSnapshotComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
		l := openTestLedger(t, dir, log)
		for i := range 20 {
			if _, err := l.do(registration(fmt.Sprintf("n%d", i))); err != nil {
				t.Fatal(err)
			}
		}
		var file bytes.Buffer
		var want string
		var began time.Time
		l.view(func(m *registry.Registry) {
			want, began = written(t, m), m.Began
			if err := writeSnapshot(m, &file); err != nil {
				t.Fatal(err)
			}
		})
		cfg := Default()
		cfg.DataDir = dir
		if _, err := Restore(cfg, bytes.NewReader(file.Bytes()), Restorer{}, log); err == nil || !strings.Contains(err.Error(), "another process") {
			t.Errorf("got %v, want a word about the process that runs", err)
		}
		if _, err := l.do(registration("later")); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		done, err := Restore(cfg, bytes.NewReader(file.Bytes()), Restorer{}, log)
		if err != nil || done.Nodes != 20 {
			t.Fatalf("got %+v (%v), want 20 nodes", done, err)
		}
		if _, err := os.Stat(filepath.Join(done.Aside, "raft.db")); err != nil {
			t.Errorf("what was there is not aside: %v", err)
		}
		for range 2 {
			l = openTestLedger(t, dir, log)
			l.view(func(m *registry.Registry) {
				if m.Began.Equal(began) {
					t.Error("it cannot be told from the log that was there before")
				}
				same := *m
				if same.Began = began; written(t, &same) != want {
					t.Error("what came back is not what was saved")
				}
			})
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzReadSnapshot(f *testing.F) {
	var file bytes.Buffer
	m := registry.New()
	m.Apply(registry.Command{Version: 1, At: t0, Do: registry.DoRegister, Nodes: []string{"a"}, Facts: &registry.Facts{Incarnation: "i", PeerAddress: "a:1"}})
	if err := writeSnapshot(m, &file); err != nil {
		f.Fatal(err)
	}
	whole := file.Bytes()
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(append(bytes.Clone(whole), ' '))
	f.Add([]byte(`{"lifeboat":"snapshot","version":99}` + "\n"))
	f.Add([]byte("{}\n{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, _, err := readSnapshot(bytes.NewReader(b))
		if (err == nil) != (got != nil) {
			t.Errorf("got %v and %v", got, err)
		}
	})
}

var _ raft.ServerAddressProvider = (*ledger)(nil)
