package agent

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

// Who was told of a rehearsal is told when it becomes earnest, though nothing else is news.
func TestEarnestIsNews(t *testing.T) {
	said := preemption.Notice{Source: preemption.SourceRehearsal, ID: "simulate", Kind: preemption.KindManual, SeenAt: time.Now()}
	i := preemption.Open(said)
	told := attended{Word: workloads.Word{Kind: string(said.Kind), Rehearsal: true}}
	if outdated(told, i) {
		t.Error("a rehearsal that was told is told again")
	}
	said.Source, said.ID = preemption.SourceManual, "manual"
	i.Join(said)
	if !outdated(told, i) {
		t.Error("that it is no rehearsal any more is not told")
	}
}

// A node that cannot be reached is named by whoever tells of it, and not by its own trouble again.
func TestTroubleOfAPeerDoesNotNameIt(t *testing.T) {
	why := errors.New("dial tcp 10.0.0.1:7412: connect: connection refused")
	a := &Agent{deps: Deps{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, why }}}
	if _, err := a.dialNode(t.Context(), "host-b", "10.0.0.1:7412", httpProtocol); err == nil || err.Error() != why.Error() {
		t.Errorf("got %q, want %q", err, why)
	}
}
