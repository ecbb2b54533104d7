package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/preemption/ec2fake"
)

// car is a sidecar's process, its pretend cloud, and the directory in which the programs that it tells leave files.
type car struct {
	*daemon
	t      *testing.T
	dir    string
	socket string
	http   string
	cloud  *ec2fake.Service
}

// newCar makes a sidecar with these actions, each a line of YAML. It does not start it.
func newCar(t *testing.T, actions ...string) *car {
	t.Helper()
	socks, err := os.MkdirTemp("", "lb") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	c := &car{t: t, dir: t.TempDir(), socket: filepath.Join(socks, "car"), http: freeAddress(t), cloud: ec2fake.New(ec2fake.Instance{ID: "i-1"})}
	metadata := httptest.NewServer(c.cloud)
	file := filepath.Join(c.dir, "sidecar.yaml")
	lines := []string{
		"node: {name: host-a}",
		"data_dir: " + filepath.Join(c.dir, "data"),
		fmt.Sprintf("listen: {http: %q, socket: %s}", c.http, c.socket),
		fmt.Sprintf("cloud: {provider: ec2, endpoint: %q}", metadata.URL), // polled each second: the default
		"actions:",
	}
	for _, a := range actions {
		lines = append(lines, "  - "+strings.ReplaceAll(a, "DIR", c.dir))
	}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.daemon = &daemon{t: t, name: "sidecar", args: []string{"sidecar", "--config", file}, log: filepath.Join(c.dir, "log")}
	t.Cleanup(func() {
		c.kill()
		c.check()
		if t.Failed() {
			c.dump()
		}
		metadata.Close()
		if err := os.RemoveAll(socks); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *car) verb(args ...string) said {
	c.t.Helper()
	return run(c.t, nil, nil, binary, append(args, "--socket", c.socket)...)
}

// up starts the sidecar and waits until it listens.
func (c *car) up() {
	c.t.Helper()
	c.start()
	c.until(func() error {
		if s := run(c.t, nil, nil, binary, "status", "--socket", c.socket); s.code != 0 {
			return errors.New(s.stderr)
		}
		return nil
	})
}

// until waits until check returns nil.
func (c *car) until(check func() error) {
	c.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if c.fell() {
			c.t.Fatalf("the sidecar has ended: %v", err)
		}
		if time.Now().After(end) {
			c.t.Fatalf("after %s: %v", patience, err)
		}
	}
}

// lines waits until a file in the car's directory has that many lines, and returns them. More lines fail the test.
func (c *car) lines(name string, count int) (lines []string) {
	c.t.Helper()
	c.until(func() error {
		b, err := os.ReadFile(filepath.Join(c.dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if lines = strings.Split(strings.TrimSpace(string(b)), "\n"); len(b) == 0 {
			lines = nil
		}
		if len(lines) < count {
			return fmt.Errorf("%s has %d lines, want %d", name, len(lines), count)
		}
		return nil
	})
	if len(lines) != count {
		c.t.Fatalf("%s has %d lines, want %d: %q", name, len(lines), count, lines)
	}
	return lines
}

// process runs a shell script until the test ends, and writes its pid into a file.
func (c *car) process(pidFile, script string) *exec.Cmd {
	c.t.Helper()
	cmd := exec.Command("/bin/sh", "-c", strings.ReplaceAll(script, "DIR", c.dir))
	launch(c.t, cmd)
	if err := os.WriteFile(filepath.Join(c.dir, pidFile), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return cmd
}

// A host has only a sidecar of Lifeboat. Each process, webhook and program that can be told of a notice is told
// once, and in time.
func TestSidecarTellsEverybody(t *testing.T) {
	story(t)
	var mu sync.Mutex
	var posts [][]byte
	hooks := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		mu.Lock()
		defer mu.Unlock()
		posts = append(posts, b.Bytes())
	}))
	defer hooks.Close()
	c := newCar(t,
		"{name: catches, signal: {signal: SIGPWR, pid_file: DIR/catches.pid}}",
		"{name: would-die, signal: {signal: SIGPWR, pid_file: DIR/dies.pid}}",
		`{name: down, webhook: {url: "http://`+freeAddress(t)+`/"}}`,
		`{name: up, phases: [noticed, withdrawn], webhook: {url: "`+hooks.URL+`"}}`,
		`{name: hook, hook: {command: [/bin/sh, -c, 'echo "$LIFEBOAT_PHASE $LIFEBOAT_KIND" >> DIR/hook; cat >> DIR/words']}}`,
	)
	c.process("catches.pid", `trap 'date +%s.%N >> DIR/caught' PWR; echo >> DIR/ready; while :; do sleep 0.01; done`)
	dies := c.process("dies.pid", `exec sleep 1000`)
	c.until(func() error { _, err := os.Stat(filepath.Join(c.dir, "ready")); return err })
	c.up()

	c.verb("simulate", "terminate", "--in", "120s", "--dry-run").exits(0).tells("catches: SIGPWR", "hook: ")
	at := time.Now()
	c.cloud.Interrupt("terminate", at.Add(2*time.Minute))
	caught, err := strconv.ParseFloat(c.lines("caught", 1)[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the process caught SIGPWR %s after the notice", time.UnixMicro(int64(caught*1e6)).Sub(at).Round(time.Millisecond))
	if got := c.lines("hook", 1); got[0] != "noticed terminate" {
		t.Errorf("the hook was told %q, want noticed terminate", got)
	}
	var word struct {
		Phase, Node, Incident, Kind, Source, Stance string
		Deadline                                    time.Time
		Remaining                                   float64 `json:"remaining_seconds"`
	}
	if err := json.Unmarshal([]byte(c.lines("words", 1)[0]), &word); err != nil {
		t.Fatal(err)
	}
	if word.Node != "host-a" || word.Source != "ec2" || word.Stance != "drain" || word.Incident == "" || word.Remaining < 30 || word.Remaining > 120 || word.Deadline.Sub(at).Round(2*time.Second) != 2*time.Minute {
		t.Errorf("the hook read %+v, want the notice", word)
	}
	c.until(c.state("would-die", "failed")) // the sidecar waits a while: the process may be about to catch the signal
	c.verb("status").exits(0).tells("terminate from ec2", "catches", "done", "failed", "running")
	c.verb("status", "-o", "json").exits(0).tells("does not catch SIGPWR and would die of it")
	if err := dies.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the process that does not catch SIGPWR: %v, want it spared", err)
	}
	page, err := fetch("http://" + c.http + "/metrics")
	for _, count := range []string{`{action="catches",phase="noticed",result="done"} 1`, `{action="would-die",phase="noticed",result="failed"} 1`} {
		if err != nil || !strings.Contains(page, "lifeboat_actions_total"+count) {
			t.Errorf("/metrics: %v, want lifeboat_actions_total%s", err, count)
		}
	}

	c.cloud.Withdraw()
	if got := c.lines("hook", 2); got[1] != "withdrawn terminate" {
		t.Errorf("the hook was told %q, want withdrawn terminate", got[1])
	}
	c.until(func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(posts) != 2 || !bytes.Contains(posts[1], []byte(`"phase":"withdrawn"`)) {
			return fmt.Errorf("the webhook was called %d times, want noticed and withdrawn: %q", len(posts), posts)
		}
		return nil
	})
	c.lines("caught", 1)
	c.until(c.state("hook", "done"))
	c.stop()
}

func fetch(url string) (string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	return b.String(), err
}

// A sidecar is killed while its program runs. The program goes on, the next sidecar does not run it again, and
// learns of its end.
func TestSidecarIsKilledWhileItTells(t *testing.T) {
	story(t)
	c := newCar(t,
		`{name: slow, hook: {command: [/bin/sh, -c, 'echo $LIFEBOAT_PHASE >> DIR/began; while [ ! -e DIR/go ]; do sleep 0.05; done; echo $LIFEBOAT_PHASE >> DIR/ended']}}`,
		`{name: quick, hook: {command: [/bin/sh, -c, 'echo $LIFEBOAT_PHASE >> DIR/quick']}}`,
	)
	c.up()
	c.cloud.Interrupt("stop", time.Now().Add(2*time.Minute))
	c.lines("began", 1)
	c.lines("quick", 1)
	c.until(c.state("quick", "done"))
	c.kill()
	c.up()
	c.until(c.state("slow", "running"))
	c.lines("began", 1)
	c.kill() // the program ends while nobody watches
	if err := os.WriteFile(filepath.Join(c.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(c.dir, "ended")); err == nil {
			break
		}
	}
	c.up()
	c.until(c.state("slow", "done"))
	c.lines("began", 1)
	c.lines("ended", 1)
	c.lines("quick", 1)
	c.stop()
	c.up()
	c.cloud.Withdraw()
	if got := c.lines("quick", 2); got[1] != "withdrawn" {
		t.Errorf("got %q, want withdrawn", got)
	}
	c.until(c.state("slow", "waiting")) // for the next notice
}

// state returns nil once the status shows that action in that state.
func (c *car) state(action, state string) func() error {
	return func() error {
		s := c.verb("status", "-o", "json").exits(0)
		var v struct {
			Actions []struct{ Name, State string } `json:"actions"`
		}
		if err := json.Unmarshal([]byte(s.stdout), &v); err != nil {
			return err
		}
		for _, a := range v.Actions {
			if a.Name == action && a.State == state {
				return nil
			}
		}
		return fmt.Errorf("%s is not %s: %+v", action, state, v.Actions)
	}
}

// An agent without a cloud is told of the notice by the sidecar beside it, and later that the machine stays.
func TestSidecarTellsAnAgent(t *testing.T) {
	f := newFleet(t)
	a, _ := f.agent("host-a"), f.agent("host-b")
	a.fill(5, 100<<10)
	f.up()
	c := newCar(t, "{name: agent, agent: {socket: "+a.socket+"}}")
	c.up()
	at := time.Now().Add(2 * time.Minute)
	c.cloud.Interrupt("terminate", at)
	m := a.gone("manual", "manual")
	if m.Incident.Deadline == nil || m.Incident.Deadline.Sub(at).Abs() > 20*time.Second { // the sidecar tells it how much time is left, not until when
		t.Errorf("the agent's deadline: got %v, want %s", m.Incident.Deadline, at)
	}
	c.cloud.Withdraw()
	f.until(a.is("ACTIVE"))
}
