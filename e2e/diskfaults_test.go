package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/disks/sickfs"
)

// In these stories a duration shows only that something hangs: how long a thing took goes to the log, and decides nothing.
const (
	drainLead = time.Minute     // a drain that waits for a disk takes little more than half of it
	watchFor  = 8 * time.Second // time for so many probes that it would show if each left a thread behind
	moreTasks = 6               // threads that Go's scheduler may add for whatever reason
	sickFiles = 6
)

// sick is a directory on a disk that can be made ill.
type sick struct {
	dir        string
	fall, heal func() error
}

// What a drain can do with the blocks on a sick disk.
const (
	carried = "moved"               // all are moved
	named   = "named"               // each is named as lost
	asWhole = "named by the folder" // the directory could not be listed: one entry names the directory
	told    = "accounted for"       // each block in any of these ways: the agent may not have noticed the fault when the drain begins
)

// Whatever befalls one disk, the agent says what it is, goes on beating, loses no thread to it, and leaves in time: the
// blocks on the other disk are moved, and every block on the sick one is in the account.
func TestDiskFaultsDelayNobody(t *testing.T) {
	story(t)
	for _, row := range []struct {
		name   string
		make   func(*testing.T) sick
		health string
		why    string // DIR stands for the directory
		fate   string
		reason string // of what is lost
	}{
		{"frozen XFS", frozenXFS, "IO_HANG", "does not come back", asWhole, "does not answer"},
		{"ext4 without inodes", noInodes, "HIGH_USAGE", "inodes of", carried, ""},
		{"ext4 remounted read-only", readOnly, "READ_ONLY", "mounted read-only", carried, ""},
		{"ext4 that vanished", vanished, "MISSING", "nothing is mounted at DIR any more", asWhole, "does not answer"},
		{"FUSE that errors", ails(sickfs.Errs), "READ_WRITE_FAILURE", "input/output error", named, "input/output error"},
		{"FUSE that hangs", ails(sickfs.Hangs), "IO_HANG", "does not come back", asWhole, "does not answer"},
		{"ext4 that vanished at once", vanished, "MISSING", "nothing is mounted at DIR any more", told, "does not answer"},
		{"FUSE that hangs at once", ails(sickfs.Hangs), "IO_HANG", "does not come back", told, "does not answer"},
		{"FUSE that is slow", ails(sickfs.Slow), "SLOW", "to write and sync", carried, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := row.make(t) // before the fleet, so that the fleet has ended when it is unmounted
			f := newFleet(t)
			a, b := f.agent("host-a"), f.agent("host-b")
			probes := "disks: {every: 1s, limit: 1s}"
			if row.health == "SLOW" {
				probes = fmt.Sprintf("disks: {every: 1s, limit: 1s, slow_at: %s}", sickfs.Slowness/2)
			}
			a.reconfigure(probes, fmt.Sprintf("stores: [{name: cache, kind: cache, layout: files, paths: [%s, %s]}]", a.cache(), s.dir))
			a.fill(10, 128<<10)
			ill := s.fill(t)
			f.up()
			f.until(a.tellsOf(s.dir, "HEALTHY", ""))
			before := a.threads()

			heal := sync.OnceValue(s.heal)
			t.Cleanup(func() { within(t, "heal", heal) }) // before the agents are killed: a process that hangs on the disk cannot be killed
			began := time.Now()
			if err := s.fall(); err != nil {
				t.Fatal(err)
			}
			notice := func() {
				f.until(a.tellsOf(s.dir, row.health, strings.ReplaceAll(row.why, "DIR", s.dir)))
				t.Logf("told as %s after %s", row.health, time.Since(began).Round(10*time.Millisecond))
			}
			if row.fate != told {
				notice()
				a.livesOn(before)
			}

			leaving := time.Now()
			a.verb("decommission", "--self", "--timeout", drainLead.String(), "--reason", row.name).exits(0)
			f.until(a.is("DECOMMISSIONED"))
			took := time.Since(leaving)
			t.Logf("left after %s of %s, with %d threads, %d before", took.Round(10*time.Millisecond), drainLead, a.threads(), before)
			if took > drainLead {
				t.Errorf("the node had left after %s, its deadline was %s", took, drainLead)
			}
			m := a.manifest()
			b.onSocket().alone().serves(t, append(a.blocks, a.accounts(m, s.dir, ill, row.fate, row.reason)...))

			if row.fate == told {
				notice()
			}
			healing := time.Now()
			within(t, "heal", heal)
			f.until(func() error {
				err := a.tellsOf(s.dir, "HEALTHY", "")()
				if err != nil && row.health == "READ_WRITE_FAILURE" && a.tellsOf(s.dir, "CRITICAL", "errors within 10m0s")() == nil {
					t.Log("so many reads failed that the disk stays CRITICAL for minutes")
					return nil
				}
				return err
			})
			t.Logf("healed after %s", time.Since(healing).Round(10*time.Millisecond))
		})
	}
}

// tellsOf returns nil once `lifeboat disks`, asked on the node, shows that health for the directory's disk, and these words
// as the reason.
func (n *node) tellsOf(path, health, why string) func() error {
	return func() error {
		if err := n.disk(path, health)(); err != nil {
			return err
		}
		for _, d := range decode[[]diskView](n.verb("disks", "-o", "json").exits(0)) {
			if d.Path == path && !strings.Contains(d.Why, why) {
				return fmt.Errorf("%s is %s because %q, want it to tell %q", path, d.Health, d.Why, why)
			}
		}
		return nil
	}
}

// beatsAfter returns nil once the coordinator has heard a beat of the node after since.
func (n *node) beatsAfter(since time.Time) func() error {
	return func() error {
		now, v := time.Now(), n.seen() // v is as of now or later
		if v.LastHeartbeat == nil || *v.LastHeartbeat >= now.Sub(since).Seconds() {
			return fmt.Errorf("%s has not beaten since %s: %+v", n.host, since, v)
		}
		return nil
	}
}

// livesOn watches the node for watchFor. It fails the test if the node's heartbeats stop or its threads grow in number.
func (n *node) livesOn(before int) {
	n.f.t.Helper()
	longest, most := 0.0, 0
	for end := time.Now().Add(watchFor); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		most = max(most, n.threads())
		v := n.seen()
		if v.State != "ACTIVE" || v.LastHeartbeat == nil {
			n.f.t.Fatalf("%s, of which one disk is sick: got %+v, want a node that beats", n.host, v)
		}
		longest = max(longest, *v.LastHeartbeat)
	}
	n.f.t.Logf("no heartbeat for %.1fs at most, %d threads at most, %d before", longest, most, before)
	n.f.until(n.beatsAfter(time.Now()))
	if most > before+moreTasks {
		n.f.t.Errorf("threads of %s went from %d to %d", n.host, before, most)
	}
}

// threads of the node's process.
func (n *node) threads() (count int) {
	n.f.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		n.f.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "Threads: %d", &count); err == nil {
			return count
		}
	}
	n.f.t.Fatalf("%s: no count of threads", n.host)
	return 0
}

// accounts fails the test unless the manifest says that all blocks on the good disk moved, and what became of each block on
// the sick disk. It returns the blocks of the sick disk that moved.
func (n *node) accounts(m manifestView, dir string, ill []block, fate, reason string) (saved []block) {
	t := n.f.t
	t.Helper()
	outcome, lost := map[string]string{}, m.lost()
	for _, e := range m.Entries {
		outcome[e.ID] = e.Outcome
	}
	for id := range n.wholes() {
		if outcome[id] != "moved" {
			t.Errorf("%s on the good disk is %q (%s), want it moved", id, outcome[id], lost[id])
		}
	}
	whole := 0
	for id, why := range lost {
		if strings.Contains(id+why, dir) && !strings.HasPrefix(id, "cache/-/sick") {
			whole++
		}
		if !strings.Contains(why, reason) || reason == "" {
			t.Errorf("%s is lost because %q, want it to tell %q", id, why, reason)
		}
	}
	if want := map[bool]int{true: 1}[fate == asWhole]; fate != told && whole != want {
		t.Errorf("%d entries name %s as a whole, want %d: %q", whole, dir, want, lost)
	}
	for _, b := range ill {
		_, isNamed := lost[b.id]
		moved := outcome[b.id] == "moved" // perhaps by an evacuation before the drain
		if moved {
			saved = append(saved, b)
		}
		switch {
		case fate == carried && moved, fate == named && isNamed, fate == asWhole && whole == 1:
		case fate == told && (moved || isNamed || whole == 1):
		default:
			t.Errorf("%s on the sick disk: the manifest says %q (%s), want it %s", b.id, outcome[b.id], lost[b.id], fate)
		}
	}
	t.Logf("manifest: %+v, lost: %q", m.Blocks, lost)
	return saved
}

// fill puts blocks on the disk while it is well.
func (s sick) fill(t *testing.T) (all []block) {
	t.Helper()
	for i := range sickFiles {
		name := fmt.Sprintf("sick-%d", i)
		text := []byte(strings.Repeat(name, 10<<10))
		b := block{"cache/-/" + name, "cache/-/" + name, filepath.Join(s.dir, name), int64(len(text)), sum(text)}
		if err := os.WriteFile(b.path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// within fails the test when work fails or hangs.
func within(t *testing.T, what string, work func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(30 * time.Second):
		t.Errorf("%s: gave up after 30s", what)
	}
}

func frozenXFS(t *testing.T) sick {
	i := mountImage(t, "xfs")
	return sick{i.dir, func() error { return i.ioctl(fiFreeze) }, i.thaw}
}

func noInodes(t *testing.T) sick {
	i := mountImage(t, "ext4", "-N", "64")
	store, ballast := filepath.Join(i.dir, "cache"), filepath.Join(i.dir, "ballast")
	for _, dir := range []string{store, ballast} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fall := func() error {
		n := 0
		for range 50 { // a probe that is under way gives its inode back a moment later
			for err := error(nil); err == nil; n++ {
				if err = os.WriteFile(filepath.Join(ballast, fmt.Sprint(n)), nil, 0o600); err != nil && !errors.Is(err, unix.ENOSPC) || n > 1000 {
					return fmt.Errorf("use up the inodes: %w", err)
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	}
	return sick{store, fall, func() error { return os.RemoveAll(ballast) }}
}

func readOnly(t *testing.T) sick {
	i := mountImage(t, "ext4")
	remount := func(flags uintptr) (err error) {
		for range 100 { // a probe may have a file open that very moment
			if err = unix.Mount("", i.dir, "", unix.MS_REMOUNT|flags, ""); !errors.Is(err, unix.EBUSY) {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
		return err
	}
	return sick{i.dir, func() error { return remount(unix.MS_RDONLY) }, func() error { return remount(0) }}
}

func vanished(t *testing.T) sick {
	i := mountImage(t, "ext4")
	gone := false // else healing would mount it twice
	fall := func() error {
		err := unix.Unmount(i.dir, unix.MNT_DETACH)
		gone = err == nil
		return err
	}
	return sick{i.dir, fall, func() error {
		if !gone {
			return nil
		}
		return i.mount()
	}}
}

func ails(ill sickfs.Ailment) func(*testing.T) sick {
	return func(t *testing.T) sick {
		s, dir := new(sickfs.FS), t.TempDir()
		s.Mount(t, dir)
		return sick{dir, func() error { s.Fall(ill); return nil }, func() error { s.Heal(); return nil }}
	}
}
