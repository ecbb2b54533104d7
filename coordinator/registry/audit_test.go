package registry

import (
	"fmt"
	"testing"
	"time"
)

func TestAuditOfTheMachine(t *testing.T) {
	ask := func(call string) *Asking { return &Asking{Call: call, Who: "operator:eve", Asked: "recommission"} }
	t.Run("the end takes the place of the beginning", func(t *testing.T) {
		s := newStory(t)
		begun := ask("1")
		begun.Outcome = OutcomeBegun
		s.must(Command{Do: DoRecord, Asked: begun})
		s.must(Command{Do: DoRecord, Asked: ask("2")})
		frozen := s.Freeze()
		s.at(5).must(Command{Do: DoRecord, Asked: ask("1")})
		if len(s.Audit) != 2 || s.Audit[0].Outcome != OutcomeDone || s.Audit[0].Index != 1 || !s.Audit[0].Time.Equal(t0) || s.Audit[1].Index != 2 {
			t.Errorf("got %+v", s.Audit)
		}
		if frozen.Audit[0].Outcome != OutcomeBegun {
			t.Error("a snapshot was written into")
		}
	})
	t.Run("what is done is not done again", func(t *testing.T) {
		s := newStory(t)
		s.register("a", "i1")
		again := Command{Do: DoDecommission, Nodes: []string{"a"}, Order: &Order{Timeout: time.Hour}, Asked: ask("1")}
		s.must(again)
		s.must(Command{Do: DoRecommission, Nodes: []string{"a"}, Asked: ask("2")})
		s.must(again)
		s.is("a", Active, 0)
		if len(s.Audit) != 2 {
			t.Errorf("got %+v, want two records", s.Audit)
		}
	})
	t.Run("the newest are kept", func(t *testing.T) {
		s := newStory(t)
		for i := range 3 * KeptAudit {
			s.must(Command{Do: DoRecord, Asked: ask(fmt.Sprint(i))})
		}
		if n := len(s.Audit); n < KeptAudit || n >= 2*KeptAudit || s.LastAudit != 3*KeptAudit || s.Audit[n-1].Index != 3*KeptAudit {
			t.Errorf("got %d records up to %d", n, s.LastAudit)
		}
	})
	t.Run("a record names so many nodes", func(t *testing.T) {
		a := Asking{}.Naming(make([]string, 300))
		if len(a.Nodes) != NamedInAudit || a.Detail["more_nodes"] != "44" {
			t.Errorf("got %d nodes and %v", len(a.Nodes), a.Detail)
		}
	})
	t.Run("a restore", func(t *testing.T) {
		m := New()
		m.Restored("local:root", "the disks are gone", t0, t0.Add(time.Hour))
		if len(m.Audit) != 1 || m.Audit[0].Who != "local:root" || m.Audit[0].Reason != "the disks are gone" || m.Audit[0].Detail["saved_at"] != Stamp(t0) {
			t.Errorf("got %+v", m.Audit)
		}
	})
	t.Run("a snapshot of before", func(t *testing.T) {
		m, err := Thaw([]byte(`{"nodes":{"a":{"name":"a","id":"node-1","state":"ACTIVE","since":"2026-11-21T12:00:00Z","incarnation":"i","peer_address":"a:1"}},"events":null,"last_event":1,"manifests":null}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Apply(Command{At: t0, Do: DoRecommission, Nodes: []string{"a"}, Asked: ask("1")}); err != nil || len(m.Audit) != 1 {
			t.Errorf("got %v, %v", m.Audit, err)
		}
	})
}

// The written form of commands and records is fixed: later versions of lifeboat read it.
func TestWhatIsWritten(t *testing.T) {
	for got, want := range map[string]string{
		written(t, Command{Version: 1, At: t0, Do: DoLose, Nodes: []string{"a"}, Term: 3}): `{"v":1,"at":"2026-11-21T12:00:00Z","do":"lose","nodes":["a"]}`,
		written(t, AuditRecord{Index: 1, Time: t0, Asking: Asking{Call: "c", Who: "w"}}):   `{"index":1,"time":"2026-11-21T12:00:00Z","call":"c","who":"w","asked":""}`,
		written(t, Node{Name: "a", Since: t0, Facts: Facts{Incarnation: "i"}}):             `{"name":"a","id":"","state":"","since":"2026-11-21T12:00:00Z","incarnation":"i","peer_address":""}`,
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
