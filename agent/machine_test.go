package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/config"
)

func TestMoveIn(t *testing.T) {
	for name, c := range map[string]struct {
		was, here string
		forgets   bool
		mark      string
	}{
		"first time":                     {"", `{"product":"a"}`, false, `{"product":"a"}`},
		"same machine":                   {`{"product":"a"}`, `{"product":"a"}`, false, `{"product":"a"}`},
		"clone":                          {`{"product":"a"}`, `{"product":"b"}`, true, `{"product":"b"}`},
		"clone without a product":        {`{"machine_id":"a"}`, `{"machine_id":"b"}`, true, `{"machine_id":"b"}`},
		"clone in a cloud":               {`{"instance":"ec2:i-1","product":"a"}`, `{"instance":"ec2:i-2","product":"a"}`, true, `{"instance":"ec2:i-2","product":"a"}`},
		"clone while the cloud is away":  {`{"instance":"ec2:i-1","product":"a"}`, `{"product":"b"}`, true, `{"product":"b"}`},
		"the cloud is away":              {`{"instance":"ec2:i-1","product":"a"}`, `{"product":"a"}`, false, `{"instance":"ec2:i-1","product":"a"}`},
		"same machine, another id":       {`{"product":"a","machine_id":"a"}`, `{"product":"a","machine_id":"b"}`, false, `{"product":"a","machine_id":"b"}`},
		"product was not readable":       {`{"machine_id":"a"}`, `{"product":"b"}`, false, `{"product":"b","machine_id":"a"}`},
		"machine that cannot be told":    {`{"product":"a"}`, `{}`, false, `{"product":"a"}`},
		"image of one that could not be": {"", `{}`, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.was != "" {
				write(t, filepath.Join(dir, "machine"), c.was+"\n")
			}
			before, err := incarnation(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"incident.json", "incidents/inc-1/moved.jsonl", "vault/catalog.db", "tls/node.key"} {
				write(t, filepath.Join(dir, name), "{}")
			}
			var here machine
			if err := json.Unmarshal([]byte(c.here), &here); err != nil {
				t.Fatal(err)
			}
			cfg := Config{DataDir: dir, Join: Join{Cloud: true}}
			if _, err := cfg.moveIn(here, slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
			after, err := incarnation(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := after != before; got != c.forgets {
				t.Errorf("another incarnation: got %v, want %v", got, c.forgets)
			}
			for _, name := range []string{"incident.json", "incidents", "tls"} {
				if _, err := os.Stat(filepath.Join(dir, name)); os.IsNotExist(err) != c.forgets {
					t.Errorf("%s: got %v, want it gone: %v", name, err, c.forgets)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, ofAnother, "tls/node.key")); (err == nil) != c.forgets {
				t.Errorf("the other's key beside: got %v, want it there: %v", err, c.forgets)
			}
			if _, err := os.Stat(filepath.Join(dir, "vault/catalog.db")); err != nil {
				t.Errorf("the blocks: %v", err)
			}
			mark, _ := os.ReadFile(filepath.Join(dir, "machine"))
			if got := strings.TrimSpace(string(mark)); got != c.mark {
				t.Errorf("got the mark %q, want %q", got, c.mark)
			}
		})
	}
}

// A copy of a machine that has no way to a certificate of its own stops and says so: it must not go on under the other's
// name. If it was given a certificate since, it goes on.
func TestCloneWithoutAWayToJoin(t *testing.T) {
	dir := t.TempDir()
	if err := certs.InitCA(dir); err != nil {
		t.Fatal(err)
	}
	issue := func() {
		if _, _, err := certs.Issue(dir, certs.Name{Role: certs.RoleNode, Name: "host-a"}, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	issue()
	cfg := Config{DataDir: filepath.Join(dir, "data"), Node: Node{Name: "host-a"}, TLS: config.TLS{CA: "ca.pem", Cert: "host-a.pem", Key: "host-a.key"}.In(dir)}
	cfg.Cloud.Provider = "none"
	log := slog.New(slog.DiscardHandler)
	if _, err := cfg.Enter(t.Context(), nil, log); err != nil {
		t.Fatal(err)
	}
	was, err := readMachine(cfg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	there := was
	there.Instance, there.Product, there.ID = "ec2:i-1", "another", "another"
	there.write(cfg.DataDir, log)
	here := machine{Instance: "ec2:i-2"}
	for range 2 { // a second start is refused, too
		if _, err := cfg.moveIn(here, log); !errors.Is(err, ErrAnothers) || !strings.Contains(err.Error(), "lifeboat join") {
			t.Fatalf("got error %v, want that it is another's, and what to do", err)
		}
	}
	for _, name := range []string{"host-a.pem", "host-a.key"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	issue()
	if _, err := cfg.moveIn(here, log); err != nil {
		t.Errorf("with a certificate of its own: %v", err)
	}
}

// A machine that waits to be let in goes on when it has a certificate all the same: one that somebody has put there, or its own that had
// seemed to be over as the clock was ahead. Nobody may ever let it in: a token is kept in /run, and ends.
func TestMachineThatWaitsToBeLetInFindsACertificate(t *testing.T) {
	for name, token := range map[string]string{"no token": "", "nobody answers": certs.NewToken(certs.Pin{}).String()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				if err := certs.InitCA(dir); err != nil {
					t.Fatal(err)
				}
				cert, key, err := certs.Issue(dir, certs.Name{Role: certs.RoleNode, Name: "host-a"}, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				cfg := Config{DataDir: filepath.Join(dir, "data"), Node: Node{Name: "host-a"}, Join: Join{TokenFile: filepath.Join(dir, "token")}, Coordinators: []string{"c1:7411"}}
				cfg.Cloud.Provider, cfg.TLS = "none", cfg.tls()
				if token != "" {
					if err := os.WriteFile(cfg.Join.TokenFile, []byte(token), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				time.AfterFunc(5*time.Minute, func() {
					for from, to := range map[string]string{filepath.Join(dir, "ca.pem"): cfg.TLS.CA, cert: cfg.TLS.Cert, key: cfg.TLS.Key} {
						if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.Rename(from, to)); err != nil {
							t.Error(err)
						}
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				away := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route") }
				if id, err := cfg.Enter(ctx, away, slog.New(slog.DiscardHandler)); err != nil || id.Name().Name != "host-a" {
					t.Errorf("got %v, want the certificate that came meanwhile", err)
				}
			})
		})
	}
}

// An image has nothing of the machine that it was made on, and keeps its settings.
func TestOfThisMachine(t *testing.T) {
	dir := t.TempDir()
	cfg := Default()
	cfg.DataDir, cfg.Listen.Socket = filepath.Join(dir, "data"), filepath.Join(dir, "agent.sock")
	cfg.Join = Join{TokenFile: filepath.Join(dir, "token")}
	cfg.TLS = cfg.tls()
	cfg.Receive.Paths = []string{filepath.Join(dir, "more")}
	gone := []string{"data/machine", "data/incarnation", "data/tls/node.key", "data/tls/node.pem", "data/incident.json", "data/incidents/inc-1/page", "data/vault/catalog.db",
		"data/of-another-machine/tls/node.key", "more/segments/seg-00000001", "token"}
	stays := []string{"agent.yaml", "data/coordinator/raft.db", "more/mine", "stores/cache/f"}
	for _, name := range append(gone, stays...) {
		write(t, filepath.Join(dir, name), "x")
	}
	listed, err := cfg.OfThisMachine()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range listed {
		if err := os.RemoveAll(path); err != nil {
			t.Error(err)
		}
	}
	for _, name := range gone {
		if _, err := os.Stat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s is still there (%v)", name, err)
		}
	}
	for _, name := range stays {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if listed, err := cfg.OfThisMachine(); err != nil || len(listed) != 0 {
		t.Errorf("again: got %q (%v), want nothing", listed, err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Files that a killed agent had not written whole are removed at the next start, but not while another agent runs on the
// same data_dir.
func TestDraftsOfAKilledAgentGo(t *testing.T) {
	c := settings(t)
	drafts := []string{filepath.Join(c.DataDir, ".new-1"), filepath.Join(c.DataDir, "evacuations", ".new-2"), filepath.Join(c.DataDir, "tls", ".new-3")}
	leave := func() {
		for _, f := range drafts {
			if err := errors.Join(os.MkdirAll(filepath.Dir(f), 0o700), os.WriteFile(f, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	leave()
	a, err := New(t.Context(), c, deps(c))
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, f := range drafts {
		if _, err := os.Stat(f); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s stays (%v)", f, err)
		}
	}
	leave()
	if _, err := New(t.Context(), c, deps(c)); err == nil {
		t.Error("two agents have one data_dir")
	}
	for _, f := range drafts {
		if _, err := os.Stat(f); err != nil {
			t.Errorf("a draft of an agent that runs is taken from it: %v", err)
		}
	}
}
