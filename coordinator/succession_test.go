package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// A machine is named by the host in its address, in any spelling; loopback names none.
func TestMachineOf(t *testing.T) {
	for _, s := range []struct{ address, want string }{
		{"10.0.0.1:7411", "10.0.0.1"},
		{"[::ffff:10.0.0.1]:7412", "10.0.0.1"},
		{"Host-A.example.:7412", "host-a.example"},
		{"127.0.0.1:7411", ""},
		{"[::1]:7411", ""},
		{"localhost:7411", ""},
		{"0.0.0.0:7411", ""},
		{"", ""},
		{"nonsense", ""},
	} {
		if got := machineOf(s.address); got != s.want {
			t.Errorf("%q: got %q, want %q", s.address, got, s.want)
		}
	}
}

// A coordinator's machine is the node that its settings name, or the one at its host.
func TestOwnMachineGoes(t *testing.T) {
	m := registry.New()
	at := func(name, address string) {
		m.Nodes[name] = registry.Node{Name: name, State: registry.Active, Facts: registry.Facts{PeerAddress: address}}
	}
	at("a", "10.0.0.1:7412")
	at("b", "10.0.0.2:7412")
	at("l", "127.0.0.1:7412")
	go1 := m.Nodes["a"]
	go1.State = registry.Decommissioning
	m.Nodes["a"], m.Nodes["l"] = go1, registry.Node{Name: "l", State: registry.Decommissioned, Facts: registry.Facts{PeerAddress: "127.0.0.1:7412"}}
	for _, s := range []struct {
		node, address string
		want          bool
	}{
		{"", "10.0.0.1:7411", true},
		{"", "10.0.0.2:7411", false},
		{"", "10.0.0.9:7411", false},
		{"", "127.0.0.1:7411", false},
		{"a", "10.0.0.2:7411", true},
		{"b", "10.0.0.1:7411", false},
		{"nobody", "10.0.0.1:7411", false},
		{"l", "127.0.0.1:7411", true},
	} {
		mine := &succession{ledger: &ledger{fsm: newReplica(), office: newOffice(0)}, leases: newLeases(0, nil, t0)}
		mine.ledger.fsm.machine = m
		if got := mine.machineGoes(s.node, s.address); got != s.want {
			t.Errorf("node %q at %s: got %t, want %t", s.node, s.address, got, s.want)
		}
	}
}

// A machine's node has left for good, and the machine is back under another name: it does not count as leaving.
func TestMachineThatWasRenamedStays(t *testing.T) {
	m := registry.New()
	at := func(name, id string, s registry.State) {
		m.Nodes[name] = registry.Node{Name: name, ID: id, State: s, Facts: registry.Facts{PeerAddress: "10.0.0.1:7412"}}
	}
	mine := &succession{ledger: &ledger{fsm: newReplica(), office: newOffice(0)}, leases: newLeases(0, nil, t0)}
	mine.ledger.fsm.machine = m
	at("old", "node-9", registry.Decommissioned)
	if !mine.machineGoes("", "10.0.0.1:7411") {
		t.Error("the only node at this host has left, and its machine is said to stay")
	}
	at("new", "node-10", registry.Active)
	if mine.machineGoes("", "10.0.0.1:7411") {
		t.Error("the machine is said to leave for what it was called before")
	}
	at("new", "node-10", registry.Decommissioning)
	if !mine.machineGoes("", "10.0.0.1:7411") {
		t.Error("the machine leaves under its new name")
	}
}

func TestNodeIsCheckedForItsName(t *testing.T) {
	for name, wrong := range map[string]bool{"": false, "host-a": false, "host/a": true} {
		cfg := Config{Node: name}
		said := false
		cfg.checkNode(func(key string, _ any, _, _ string) { said = key == "node" })
		if said != wrong {
			t.Errorf("node %q: reported %t, want %t", name, said, wrong)
		}
	}
}

// A leader whose certificate ends hands the lead over: new connections to it would fail, while the connected coordinators would let it lead
// on.
func TestWhoseCertificateEndsShouldNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := certs.InitCA(dir); err != nil {
			t.Fatal(err)
		}
		cert, key, err := certs.Issue(dir, certs.Name{Role: certs.RoleCoordinator, Name: "c"}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		id, err := certs.Load(filepath.Join(dir, "ca.pem"), cert, key)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(id.Expires()) - certificateLeft - 10*time.Second) // nothing else runs yet for most of a year
		cfg := Default()
		cfg.DataDir = t.TempDir()
		f := opened(t, cfg)
		f.succession.identity = id
		if why := f.succession.unfit(); why != "" {
			t.Errorf("got %q while the certificate is good", why)
		}
		time.Sleep(11 * time.Second)
		if why := f.succession.unfit(); !strings.Contains(why, "certificate ends at ") {
			t.Errorf("got %q, want that the certificate ends", why)
		}
	})
}

// Of coordinators that are upgraded one after the other an older one may not be able to read what a newer leader decides. It says so,
// lets others lead, and understands the fleet again once it has a snapshot that it can read.
func TestWhoCannotReadTheLogShouldNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		f := lone(t)
		f.succession.log = slog.New(slog.NewTextHandler(&said, nil))
		if err := f.ledger.awaitLead(t.Context()); err != nil {
			t.Fatal(err)
		}
		nodes := func() (known int) {
			f.ledger.view(func(m *registry.Registry) { known = len(m.Nodes) })
			return known
		}
		decided := func(version int, name string) {
			c := registration(name)
			c.Version, c.At = version, t0
			data, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			f.ledger.fsm.Apply(&raft.Log{Index: 100, Data: data})
		}
		installed := func(version int) {
			if err := f.ledger.fsm.Restore(io.NopCloser(strings.NewReader(fmt.Sprintf(`{"v":%d,"nodes":{}}`, version)))); err != nil {
				t.Fatal(err)
			}
		}
		fit := func(is bool) {
			t.Helper()
			ready := httptest.NewRecorder()
			(&web{fleet: f}).ready(ready, nil)
			if why := f.succession.unfit(); (why == "") != is || (ready.Code == http.StatusOK) != is || !is && !strings.Contains(why, "or a newer one") {
				t.Errorf("got %q and %d: %s, want that it may lead to be %t", why, ready.Code, ready.Body, is)
			}
		}
		decided(registry.CommandVersion, "a")
		fit(true)
		decided(registry.CommandVersion+1, "b")
		decided(registry.CommandVersion, "c")
		fit(false)
		if nodes() != 1 {
			t.Errorf("got %d nodes, want none from behind what it cannot read", nodes())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := f.succession.run(ctx); err != nil {
			t.Error(err)
		}
		if lines := strings.Count(said.String(), "cannot read what was decided"); lines != 1 {
			t.Errorf("got %d lines about it, want 1: %s", lines, &said)
		}
		installed(registry.CommandVersion)
		fit(true)
		installed(registry.CommandVersion + 1)
		fit(false)
		installed(0) // of a lifeboat that wrote no version
		fit(true)
	})
}
