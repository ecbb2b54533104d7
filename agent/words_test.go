package agent

import (
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
