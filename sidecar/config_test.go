package sidecar

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/config/configtest"
	"github.com/lifeboat/lifeboat/preemption"
)

const example = "../packaging/examples/sidecar.yaml"

func TestExample(t *testing.T) {
	got, err := Load(example)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Node.Name = "host-b"
	want.Actions = []Action{
		{Name: "spark-worker", When: "drain", Phases: []string{"noticed"}, Timeout: 10 * time.Minute,
			Signal: Signal{Signal: "SIGPWR", Unit: "spark-worker.service"}},
		{Name: "empty-scratch", When: "drain", Phases: []string{"noticed", "withdrawn"}, Timeout: 90 * time.Second,
			Hook: Hook{Command: []string{"/usr/local/bin/empty-scratch", "--now"}, Env: map[string]string{"BUCKET": "s3://scratch"}}},
		{Name: "chat", When: "watch", Phases: []string{"noticed", "changed", "done", "withdrawn"}, Timeout: 10 * time.Minute,
			Webhook: Webhook{URL: "https://hooks.example.com/lifeboat", HeaderFiles: map[string]string{"Authorization": "../packaging/examples/chat-token"}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// What an action is told where its settings do not say. An agent that knows only of the first deadline would carry on past an earlier one.
func TestPhasesThatSuitTheWay(t *testing.T) {
	for want, a := range map[string]Action{
		"noticed":                   {Signal: Signal{Signal: "SIGPWR", Unit: "a.service"}},
		"noticed withdrawn":         {Hook: Hook{Command: []string{"/bin/true"}}},
		"noticed changed withdrawn": {Agent: Agent{Socket: "/run/lifeboat/agent.sock"}},
	} {
		if a.fill(); strings.Join(a.Phases, " ") != want {
			t.Errorf("a %s is told %q, want %s", a.way(), a.Phases, want)
		}
	}
}

// What people copy must be accepted: the example without its comments, and every block of YAML in the manual that begins
// with the comment "# ...sidecar.yaml".
func TestWhatPeopleCopyIsAccepted(t *testing.T) {
	accepted := func(where, text string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "sidecar.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := Load(file)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			return
		}
		if _, err := cfg.build(Deps{}); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	plain := regexp.MustCompile(`(?m)^( *)#([a-z]|- \{)`).ReplaceAllString(string(text), "$1$2")
	if !strings.Contains(plain, "\n  - {name: agent") || !strings.Contains(plain, "\npolicy:") {
		t.Fatal("the example's comments show less than they should")
	}
	accepted(example, plain)

	manual, err := os.ReadFile("../docs/sidecar.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n# [^\n]*sidecar\\.yaml[^\n]*\n(.*?)```").FindAllStringSubmatch(string(manual), -1)
	if len(blocks) < 3 {
		t.Errorf("docs/sidecar.md has %d files of settings, want Spark's, Nomad's and a webhook's", len(blocks))
	}
	for _, m := range blocks {
		accepted("docs/sidecar.md", m[1])
	}
}

// docs/sidecar.md has a row for every key, with the default.
func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/sidecar.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_.\\[\\]]+)` \\|.*$").FindAllStringSubmatch(string(text), -1) {
		rows[m[1]] = m[0]
	}
	defaults := map[string]string{
		"data_dir": "/var/lib/lifeboat-sidecar", "listen.http": "127.0.0.1:7414", "listen.socket": "/run/lifeboat/sidecar.sock",
		"cloud": "auto", "actions[].when": "drain", "actions[].timeout": "10m",
	}
	var keys func(prefix string, of reflect.Type)
	keys = func(prefix string, of reflect.Type) {
		for f := range of.Fields() {
			key := prefix + f.Tag.Get("yaml")
			switch {
			case f.Type.Kind() == reflect.Struct && key != "cloud": // which is the agent's too, and documented there
				keys(key+".", f.Type)
			case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
				keys(key+"[].", f.Type.Elem())
			default:
				if row := rows[key]; row == "" || !strings.Contains(row, defaults[key]) {
					t.Errorf("docs/sidecar.md: the row for %s is %q, want one that says its default of %q", key, row, defaults[key])
				}
				delete(rows, key)
			}
		}
	}
	keys("", reflect.TypeFor[Config]())
	for key := range rows {
		if strings.Contains(key, ".") || strings.Contains(key, "_dir") {
			t.Errorf("docs/sidecar.md has a row for %s, which is no key", key)
		}
	}
}

func TestFaults(t *testing.T) {
	configtest.Faults(t, func(path string) error { _, err := Load(path); return err }, "testdata/faults.yaml")
}

func TestReload(t *testing.T) {
	cfg := Default()
	s := &Sidecar{cfg: cfg}
	next := cfg
	next.Policy = preemption.Policy{preemption.KindReboot: preemption.StanceDrain}
	next.Actions = []Action{{Name: "one"}}
	next.DataDir = "/elsewhere"
	if left := s.Reload(next); !reflect.DeepEqual(left, []string{"data_dir", "actions"}) {
		t.Errorf("got %q left alone, want data_dir and actions", left)
	}
	if got := s.policy.Load().Stance(preemption.KindReboot); got != preemption.StanceDrain {
		t.Errorf("got %s, want the new policy", got)
	}
}

// An accepted configuration can be built: no file fails only when a notice comes.
func FuzzAccepted(f *testing.F) {
	for _, file := range []string{example, "testdata/faults.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("actions: [{name: a, signal: {signal: pwr, match: {cmdline: 'a(b'}}}, {name: b, agent: {socket: /a}}]"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		file := filepath.Join(dir, "sidecar.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := Load(file)
		if err != nil {
			return
		}
		if _, err := cfg.build(Deps{}); err != nil {
			t.Fatalf("accepted, and then: %v\n%s", err, text)
		}
	})
}
