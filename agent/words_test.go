package agent

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

// A workload that was told of a rehearsal is told again when the notice becomes real, even if nothing else has
// changed.
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

// The trouble of a peer does not name the peer: the message around it does.
func TestTroubleOfAPeerDoesNotNameIt(t *testing.T) {
	why := errors.New("dial tcp 10.0.0.1:7412: connect: connection refused")
	a := &Agent{deps: Deps{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, why }}}
	if _, err := a.dialNode(t.Context(), "host-b", "10.0.0.1:7412", httpProtocol); err == nil || err.Error() != "reach 10.0.0.1:7412: connection refused" || !errors.Is(err, why) {
		t.Errorf("got %q, want %q in plain words", err, why)
	}
}

// A node whose machine takes the connection, and from which nothing comes, is not described in the words of a library.
func TestTroubleOfAPeerThatAnswersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		a := &Agent{deps: Deps{
			Dial:     func(context.Context, string, string) (net.Conn, error) { return here, nil },
			Identity: certs.Dev(certs.Name{Role: certs.RoleNode, Name: "host-a"}),
		}}
		_, err := a.dialNode(t.Context(), "host-b", "10.0.0.1:7412", httpProtocol)
		if err == nil || !strings.HasPrefix(err.Error(), "handshake at 10.0.0.1:7412: it takes connections and answers nothing") {
			t.Errorf("got %v, want that nothing was answered", err)
		}
	})
}
