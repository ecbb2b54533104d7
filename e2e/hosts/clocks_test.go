package hosts_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// askew is a lifeboat binary whose clock is wrong by LIFEBOAT_E2E_SKEW; time passes at its usual pace. The kernel has one clock
// for all namespaces, so the binary is built with a changed time.Now.
var askew = sync.OnceValues(func() (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		return "", err
	}
	const now = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	if n := strings.Count(string(text), now); n != 1 {
		return "", fmt.Errorf("time.Now is not what it was: found %d places to change", n)
	}
	wrong := strings.Replace(string(text), now, "\tsec, nsec, mono := runtimeNow()\n\tsec += askew\n\tif mono == 0 {", 1)
	const skew = `package time

import "syscall"

// askew is by how many seconds this process's clock is wrong.
var askew = func() (seconds int64) {
	text, _ := syscall.Getenv("LIFEBOAT_E2E_SKEW")
	d, _ := ParseDuration(text)
	return int64(d / Second)
}()
`
	dir := filepath.Join(inside, "askew")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range map[string]string{"time.go": wrong, "askew.go": skew} {
		replace[filepath.Join(source, name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "lifeboat")
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-overlay", filepath.Join(dir, "overlay.json"), "-o", path, "../../cmd/lifeboat")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build a binary with a wrong clock: %w\n%s", err, out)
	}
	return path, nil
})

// off starts the daemon again with a clock that is wrong by skew.
func (d *daemon) off(skew time.Duration) {
	d.t.Helper()
	d.kill()
	d.skew = skew
	d.start()
}

// The clocks of all coordinators and of one agent are nearly an hour ahead, those of two other agents as far behind. A node
// ahead leaves, and one behind. What crosses the wire is the time that is left, so no node is lost, and each leaves in time
// with all of its blocks, through a failover. (docs/coordinators.md asks that the coordinators' clocks agree with each other.)
func TestClocksFarOff(t *testing.T) {
	const far = 50 * time.Minute // certificates begin an hour before they are made
	f := newTown(t, 4, slowly)
	f.settled()
	for _, c := range f.coordinators {
		c.off(far)
	}
	f.nodes[0].off(far)
	f.nodes[1].off(-far)
	f.nodes[2].off(-far)
	f.leader()
	f.settled()
	time.Sleep(2 * lease)
	f.nobodyLost()

	for _, n := range f.nodes[:2] { // the one that is ahead, and one that is behind
		n.fill(16, 8<<20)
		deadline := f.verb("decommission", n.host, "--timeout", "2m").exits(0).gives(2 * time.Minute)
		n.underWay(2)
		leader := f.leader()
		leader.kill()
		f.until(func() error {
			if f.leader() == leader {
				return fmt.Errorf("%s is dead and leads", leader.on.name)
			}
			return nil
		})
		if left := n.remaining(); left < 20*time.Second || left > time.Until(deadline.last)+2*time.Second {
			t.Errorf("%s has %s left, and was given until %s", n.host, left, deadline.last)
		}
		n.drained()
		f.until(n.is("DECOMMISSIONED"))
		n.allMoved()
		n.kill()
		n.readBack()
		leader.start()
		f.until(func() error { return f.follows(leader) })
	}
	f.nobodyLost()
}

// remaining is how much time the agent believes it has. The verb that asks prints the deadline by a right clock.
func (n *node) remaining() time.Duration {
	n.f.t.Helper()
	s := n.status()
	if s.Notice == nil || s.Notice.Deadline == nil {
		n.f.t.Fatalf("%s is under no notice: %+v", n.host, s)
	}
	return time.Until(*s.Notice.Deadline)
}

// The clock is so far behind that the certificate is not valid yet. The daemon says to check the clock.
func TestClockBehindTheCertificate(t *testing.T) {
	f := newTown(t, 1)
	f.settled()
	for _, d := range []*daemon{f.coordinators[0], f.nodes[0].daemon} {
		d.kill()
		d.skew = -25 * time.Hour
		d.start()
		<-d.ended
		if code := d.cmd.ProcessState.ExitCode(); code != 1 {
			t.Errorf("%s: got exit code %d, want 1, after which it is tried again", d.on.name, code)
		}
		text, err := os.ReadFile(d.log)
		if err != nil || !strings.Contains(lastLines(string(text)), "check the clock") {
			t.Errorf("%s does not say what is wrong (%v):\n%s", d.on.name, err, lastLines(string(text)))
		}
		d.kill()
		d.skew = 0
		d.start()
	}
	f.until(f.nodes[0].is("ACTIVE"))
}

// One coordinator's clock is nearly an hour ahead of the others'. It does not lead while another can, not even when an operator
// tells it to. So a drain keeps its time.
func TestOneClockFarOff(t *testing.T) {
	f := newTown(t, 3, slowly)
	f.settled()
	wrong := f.coordinators[0]
	wrong.off(50 * time.Minute)
	f.until(func() error { return f.follows(wrong) })
	time.Sleep(12 * time.Second) // it compares its clock with the others' every ten seconds
	n := f.nodes[0]
	n.fill(16, 8<<20)
	deadline := f.verb("decommission", n.host, "--timeout", "2m").exits(0).gives(2 * time.Minute)
	n.underWay(2)
	f.verb("raft", "transfer", "--to", wrong.on.name) // whatever it answers
	f.until(func() error {
		if f.leader() == wrong {
			return fmt.Errorf("%s leads", wrong.on.name)
		}
		return nil
	})
	if left := n.remaining(); left < 20*time.Second || left > time.Until(deadline.last)+2*time.Second {
		t.Errorf("got %s left, and it was given until %s", left, deadline.last)
	}
	n.drained()
	f.until(n.is("DECOMMISSIONED"))
	n.allMoved()
	f.nobodyLost()
}
