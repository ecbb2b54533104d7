package agent

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
)

// A drain plans with the node's place, the funcs by which it can ask others, the caps in force when it begins, and a
// deadline that may move.
func TestDrainIsToldWhatItPlansBy(t *testing.T) {
	c := settings(t)
	c.Node.Zone, c.Node.Pool = "z1", "m7gd.large-spot"
	c.Drain.MaxBytesPerSecond, c.Drain.ConnectionsPerPeer = 1000, 3
	a, err := New(t.Context(), c, deps(c))
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()

	now := time.Now()
	notice := preemption.Notice{Source: preemption.SourceEC2, ID: "x", Kind: preemption.KindTerminate, SeenAt: now, Deadline: now.Add(2 * time.Minute)}
	p, _, err := a.incidents.Join(notice)
	if err != nil {
		t.Fatal(err)
	}
	last := a.course.passConfig(p.Incident.ID, "", true)
	if last.Node != "host-a" || last.Zone != "z1" || last.Pool != "m7gd.large-spot" || last.Incident != p.Incident.ID || last.Connections != 3 || last.MaxBytesPerSecond != 1000 || last.Once {
		t.Errorf("the last pass gets %+v", last)
	}
	if !last.Alone() {
		t.Error("it would say that it is spread by a coordinator that has never answered")
	}
	if got := last.Until(); !got.Equal(notice.Deadline.Add(-10 * time.Second)) {
		t.Errorf("sending ends %v before the deadline, want 10 s", notice.Deadline.Sub(got))
	}
	notice.Deadline = now.Add(time.Minute)
	if _, _, err := a.incidents.Join(notice); err != nil {
		t.Fatal(err)
	}
	if got := last.Until(); !got.Equal(notice.Deadline.Add(-10 * time.Second)) {
		t.Errorf("the deadline moved, and sending ends %v before it, want 10 s", notice.Deadline.Sub(got))
	}
	faster := *a.limits.Load()
	faster.Drain.MaxBytesPerSecond = 2000
	a.limits.Store(&faster)
	if ahead := a.course.aheadConfig(p.Incident.ID, ""); ahead.MaxBytesPerSecond != int64(c.Drain.PreCopyBytesPerSecond) || !ahead.Once || ahead.Dir != last.Dir {
		t.Errorf("copying ahead gets %+v", ahead)
	}
	if next := a.course.passConfig(p.Incident.ID, "", false); next.MaxBytesPerSecond != 2000 || !next.Once {
		t.Errorf("the pass after a reload gets a cap of %d bytes a second and Once %t, want 2000 and true", next.MaxBytesPerSecond, next.Once)
	}
	a.refuge.add(p.Incident.ID) // the disk of data_dir hangs, which has the catalog, too
	if in := a.course.passConfig(p.Incident.ID, "", true); last.Wary || !in.Wary {
		t.Errorf("waits for the catalog: before it hangs %t, amid that %t; want true and false", !last.Wary, !in.Wary)
	}
}
