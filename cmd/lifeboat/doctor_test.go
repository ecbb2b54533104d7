package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
)

// well returns the examination of a machine without faults.
func well() *examination {
	return &examination{
		kind: "agent", settings: preemption.DefaultSettings(), firmware: "ec2", provider: "ec2", socket: "/run/lifeboat/agent.sock",
		instance: preemption.Instance{ID: "i-1"}, took: time.Millisecond,
		agent: &api.AgentStatus{
			Node: "host-a", Provider: "ec2", Coordinator: "10.0.0.1:7411", LastHeartbeat: durationpb.New(time.Second), StartedAt: timestamppb.Now(),
			Sources: []*api.SourceHealth{{Source: "ec2", Path: "spot/instance-action", LastGood: durationpb.New(time.Second)}},
			Peers:   []*api.Peer{{Node: "host-b", RoomBytes: 1 << 30}},
		},
		carrier: true,
		stores:  []storeLook{{Store: agent.Store{Name: "cache", Layout: "files", Paths: []string{"/mnt/d0/cache"}}}},
		host: systemd.Host{
			Booted: true, ClockSynced: true, MaxDelay: 30 * time.Second, Locks: []systemd.Inhibitor{{PID: 7}},
			Unit: systemd.Unit{Name: "lifeboat-agent.service", After: []string{"network-online.target"}, StopTimeout: 150 * time.Second, KillMode: "mixed"},
		},
	}
}

// Each fault is found by itself, and named with its remedy.
func TestDiagnosis(t *testing.T) {
	for _, row := range []struct {
		name  string
		amiss func(*examination)
		check string // empty: all is well
		state string
		words string // in what was found or in the remedy
	}{
		{"all is well", func(*examination) {}, "", "", ""},
		{"another cloud", func(x *examination) { x.provider, x.agent.Provider = "gce", "gce" }, "provider", stateBad, "cloud.provider: auto"},
		{"metadata turned off", func(x *examination) { x.instanceErr = errors.New("answered 403 Forbidden") }, "metadata", stateBad, "turn it on"},
		{"a port with the digits of a status", func(x *examination) {
			x.instanceErr = errors.New(`ask for instance-id: Get "http://127.0.0.1:40379/latest": answered 503 Service Unavailable`)
		}, "metadata", stateBad, "ask again"},
		{"metadata throttled", func(x *examination) { x.instanceErr = errors.New("answered 503 Service Unavailable") }, "metadata", stateBad, "ask again"},
		{"no token in a container", func(x *examination) {
			x.instanceErr, x.container = errors.New("get a metadata token: no whole answer in time"), true
		}, "metadata", stateBad, "hop limit to 2"},
		{"nobody there", func(x *examination) { x.instanceErr = errors.New("connect: connection refused") }, "metadata", stateBad, "169.254.169.254"},
		{"the clock is off", func(x *examination) { x.skew = -3 * time.Minute }, "clock, to the cloud", stateBad, "time server"},
		{"no agent", func(x *examination) { x.agent, x.agentErr, x.host.Locks = nil, errors.New("refused"), nil }, "agent", stateBad, "--socket"},
		{"a machine that is not set up", func(x *examination) {
			x.agent, x.agentErr, x.unset = nil, errors.New("refused"), defaultAgentConfig
		}, "agent", stateBad, "no /etc/lifeboat/agent.yaml: nothing is set up lifeboat join"},
		{"an agent that is not ours to ask", func(x *examination) { x.agent, x.agentErr = nil, fmt.Errorf("doctor: %w: for root", os.ErrPermission) }, "agent", stateUnknown, "ask as root"},
		{"an agent that hangs", func(x *examination) { x.agent, x.agentErr = nil, fmt.Errorf("doctor: %w", errHangs) }, "agent", stateBad, "restart lifeboat-agent"},
		{"an agent that fails", func(x *examination) {
			x.agent, x.agentErr, x.host.Unit.ActiveState = nil, errors.New("refused"), "failed"
		}, "agent", stateBad, "lifeboat-agent.service is failed systemctl status lifeboat-agent.service says why"},
		{"an agent that waits to join", func(x *examination) { x.agent, x.agentErr, x.awaits = nil, errors.New("refused"), "/d/tls/node.pem" }, "agent", stateBad,
			"yet: it has no good certificate (/d/tls/node.pem), and waits"},
		{"an agent that says what it waits for", func(x *examination) {
			x.agent, x.agentErr, x.awaits, x.host.Unit.StatusText = nil, errors.New("refused"), "/d/tls/node.pem", "waits to be let into the fleet: no token"
		}, "agent", stateBad, "yet: it waits to be let into the fleet: no token"},
		{"a blind source", func(x *examination) { x.agent.Sources[0].Trouble = "answered 429" }, "ec2 instance-action", stateBad, "429"},
		{"a source that never heard", func(x *examination) {
			x.agent.Sources[0] = &api.SourceHealth{Source: "ec2", Path: "spot/instance-action", Trouble: "timeout"}
		}, "ec2 instance-action", stateBad, "never"},
		{"a source that stands still", func(x *examination) { x.agent.Sources[0].LastGood = durationpb.New(time.Hour) }, "ec2 instance-action", stateBad, "restart"},
		{"a certificate that ends", func(x *examination) { x.agent.CertificateEnds = timestamppb.New(time.Now().Add(6 * 24 * time.Hour)) }, "certificate", stateBad, "lifeboat tls issue --dir DIR --node host-a"},
		{"a certificate of two days, on its first", func(x *examination) {
			x.agent.CertificateBegins, x.agent.CertificateEnds = timestamppb.New(time.Now().Add(-23*time.Hour)), timestamppb.New(time.Now().Add(25*time.Hour))
		}, "", "", ""},
		{"a certificate of two days, near its end", func(x *examination) {
			x.agent.CertificateBegins, x.agent.CertificateEnds = timestamppb.New(time.Now().Add(-33*time.Hour)), timestamppb.New(time.Now().Add(15*time.Hour))
		}, "certificate", stateBad, "lifeboat tls issue --dir DIR --node host-a"},
		{"a certificate that has ended", func(x *examination) { x.agent.CertificateEnds = timestamppb.New(time.Now().Add(-time.Hour)) }, "certificate", stateBad, "nobody talks"},
		{"no coordinator", func(x *examination) { x.agent.CoordinatorTrouble = "coordinator 10.0.0.1:7411: beat: refused" }, "coordinator", stateBad, "10.0.0.1:7411: beat: refused"},
		{"a coordinator that has not answered yet", func(x *examination) { x.agent.LastHeartbeat = nil }, "coordinator", stateUnknown, "10.0.0.1:7411 has not answered yet ask again"},
		{"another machine of the name", func(x *examination) {
			x.agent.CoordinatorTrouble = "coordinator 10.0.0.1:7411: register: node host-a: registered with another incarnation: another machine has this name"
		}, "coordinator", stateBad, "stop that one (lifeboat node host-a"},
		{"no peers", func(x *examination) { x.agent.Peers = nil }, "peers", stateBad, "nowhere to go"},
		{"no peers for want of room", func(x *examination) { x.agent.Peers = nil }, "peers", stateBad, "or without room (receive.max_bytes, receive.paths)"},
		{"peers without room", func(x *examination) { x.agent.Index = &api.Index{Blocks: 7, Bytes: 2 << 30} }, "peers", stateBad, "2.0 GiB at least are here: the rest would be lost"},
		{"peers without room in their vaults", func(x *examination) {
			x.agent.Index, x.agent.Status = &api.Index{Blocks: 7, Bytes: 1200 << 20}, &api.Status{Stores: []*api.StoreInfo{{Name: "cache", Layout: "files"}, {Name: "spark", Layout: "spark"}}}
			x.agent.Peers[0] = &api.Peer{Node: "host-b", RoomBytes: 50 << 30, VaultRoomBytes: new(int64(300 << 20)), Places: []string{"spark"}}
		}, "peers", stateBad, "1 peer with room for 50.0 GiB (vault: 300 MiB), and 1.2 GiB at least are here that can only go to a vault: the rest would be lost"},
		{"peers whose vaults are full, before files are counted", func(x *examination) {
			x.agent.Status = &api.Status{Stores: []*api.StoreInfo{{Name: "cache", Layout: "files"}}}
			x.agent.Peers[0].VaultRoomBytes = new(int64(0))
		}, "peers", stateWarn, "1 peer with room for 1.0 GiB (vault: 0 B), and none for plain files"},
		{"peers with a place for what is here", func(x *examination) {
			x.agent.Index, x.agent.Status = &api.Index{Blocks: 7, Bytes: 1200 << 20}, &api.Status{Stores: []*api.StoreInfo{{Name: "cache", Layout: "files"}}}
			x.agent.Peers[0] = &api.Peer{Node: "host-b", RoomBytes: 50 << 30, VaultRoomBytes: new(int64(300 << 20)), Places: []string{"cache"}}
		}, "", "", ""},
		{"room in the vaults of those who are advised to go alone", func(x *examination) {
			x.agent.Index, x.agent.Status = &api.Index{Blocks: 7, Bytes: 1200 << 20}, &api.Status{Stores: []*api.StoreInfo{{Name: "cache", Layout: "files"}}}
			x.agent.Peers[0] = &api.Peer{Node: "host-b", RoomBytes: 50 << 30, VaultRoomBytes: new(int64(300 << 20)), Places: []string{"spark"}}
			x.agent.Peers = append(x.agent.Peers, &api.Peer{Node: "host-c", RoomBytes: 2 << 30, Advised: true})
		}, "peers", stateWarn, "1 peer that may leave too with 2.0 GiB"},
		{"a block larger than a peer has room for in one place", func(x *examination) {
			x.agent.Index = &api.Index{Blocks: 7, Bytes: 900 << 20, LargestBytes: 400 << 20}
			x.agent.Peers[0].LargestRoomBytes = 300 << 20
		}, "largest block", stateBad, "400 MiB, and no peer has room for more than 300 MiB in one place: it would be lost"},
		{"a block larger than that, and a fallback", func(x *examination) {
			x.agent.Index = &api.Index{Blocks: 7, Bytes: 900 << 20, LargestBytes: 400 << 20}
			x.agent.Peers[0].LargestRoomBytes = 300 << 20
			x.agent.Fallback = &api.Fallback{Name: "spill", Tried: durationpb.New(time.Minute)}
		}, "largest block", stateWarn, "it would go to the fallback"},
		{"a large block with a place for it", func(x *examination) {
			x.agent.Index, x.agent.Status = &api.Index{Blocks: 7, Bytes: 900 << 20, LargestBytes: 400 << 20}, &api.Status{Stores: []*api.StoreInfo{{Name: "cache", Layout: "files"}}}
			x.agent.Peers[0] = &api.Peer{
				Node: "host-b", RoomBytes: 2 << 30, VaultRoomBytes: new(int64(300 << 20)), LargestRoomBytes: 1 << 30, LargestVaultRoomBytes: 300 << 20, Places: []string{"cache"},
			}
		}, "", "", ""},
		{"peers without room for others' blocks", func(x *examination) { x.agent.Status = &api.Status{HeldBytes: 2 << 30} }, "peers", stateBad, "would be lost"},
		{"peers that are advised to go alone", func(x *examination) { x.agent.Peers[0].Advised = true }, "peers", stateWarn, "0 peers with room for 0 B, and 1 peer that may leave too with 1.0 GiB"},
		{"room with those who are advised to go alone", func(x *examination) {
			x.agent.Index = &api.Index{Blocks: 7, Bytes: 2 << 30}
			x.agent.Peers = append(x.agent.Peers, &api.Peer{Node: "host-c", RoomBytes: 2 << 30, Advised: true})
		}, "peers", stateWarn, "1 peer with room for 1.0 GiB, and 1 peer that may leave too with 2.0 GiB: 2.0 GiB at least are here"},
		{"no room with those who are advised to go either", func(x *examination) {
			x.agent.Index = &api.Index{Blocks: 7, Bytes: 2 << 30}
			x.agent.Peers[0].Advised = true
		}, "peers", stateBad, "would be lost"},
		{"room in the fallback alone", func(x *examination) {
			x.agent.Index, x.agent.Fallback = &api.Index{Blocks: 7, Bytes: 2 << 30}, &api.Fallback{Name: "spill", Tried: durationpb.New(time.Minute)}
		}, "peers", stateWarn, "would go to the fallback"},
		{"tiny blocks that take more than their bytes", func(x *examination) {
			x.agent.Index = &api.Index{Blocks: 1 << 20, Bytes: 900 << 20}
		}, "peers", stateBad, "1 peer with room for 1.0 GiB, and 1.3 GiB at least are here: the rest would be lost"},
		{"a fallback without room for the rest", func(x *examination) {
			x.agent.Index, x.agent.Fallback = &api.Index{Blocks: 7, Bytes: 2 << 30}, &api.Fallback{Name: "spill", Tried: durationpb.New(time.Minute), RoomBytes: new(int64(900 << 20))}
		}, "peers", stateBad, "1 peer with room for 1.0 GiB, the fallback for 900 MiB, and 2.0 GiB at least are here: the rest would be lost"},
		{"a fallback with room for the rest", func(x *examination) {
			x.agent.Index, x.agent.Fallback = &api.Index{Blocks: 7, Bytes: 2 << 30}, &api.Fallback{Name: "spill", Tried: durationpb.New(time.Minute), RoomBytes: new(int64(2 << 30))}
		}, "peers", stateWarn, "would go to the fallback"},
		{"no peers but a fallback", func(x *examination) {
			x.agent.Peers, x.agent.Fallback = nil, &api.Fallback{Name: "spill", Tried: durationpb.New(time.Minute)}
		}, "peers", stateWarn, "the fallback alone"},
		{"a fallback on the machine's own disk", func(x *examination) {
			x.agent.Fallback = &api.Fallback{Name: "spill", Tried: durationpb.New(0), Doubt: "/mnt/share lies on the file system of data_dir, /var/lib/lifeboat: is the share mounted?"}
		}, "fallback", stateBad, "go with this machine: /mnt/share lies on"},
		{"a fallback that takes nothing", func(x *examination) {
			x.agent.Fallback = &api.Fallback{Name: "spill", Tried: durationpb.New(time.Minute), Since: durationpb.New(time.Hour), Trouble: "the bucket does not exist"}
		}, "fallback", stateBad, "spill takes nothing for 1h0m: the bucket does not exist"},
		{"a dying disk", func(x *examination) {
			x.agent.Status = &api.Status{Disks: []*api.Disk{{Path: "/mnt/d0", Health: "READ_ONLY", Why: "mounted read-only", Unwell: true}, {Path: "/mnt/d1", Health: "HEALTHY"}}}
		}, "disk /mnt/d0", stateBad, "READ_ONLY: mounted read-only"},
		{"a full disk", func(x *examination) {
			x.agent.Status = &api.Status{Disks: []*api.Disk{{Path: "/mnt/d0", Health: "HIGH_USAGE", Why: "full: has 3 GiB"}}}
		}, "disk /mnt/d0", stateWarn, "no peer's block lands on it"},
		{"no time server", func(x *examination) { x.host.ClockSynced = false }, "clock", stateWarn, "chrony"},
		{"logind is impatient", func(x *examination) { x.host.MaxDelay = 5 * time.Second }, "logind", stateWarn, "InhibitDelayMaxSec"},
		{"no logind", func(x *examination) { x.host.LoginErr = errors.New("no bus") }, "logind", stateBad, "no bus"},
		{"no lock", func(x *examination) { x.host.Locks = nil }, "shutdown lock", stateBad, "would not wait"},
		{"the network goes first", func(x *examination) { x.host.Unit.After = nil }, "unit order", stateBad, "After=network-online.target"},
		{"killed early", func(x *examination) { x.host.Unit.StopTimeout = 90 * time.Second }, "unit stop", stateWarn, "TimeoutStopSec"},
		{"hooks are killed", func(x *examination) { x.host.Unit.KillMode = "control-group" }, "unit kill mode", stateWarn, "KillMode=mixed"},
		{"a bad file", func(x *examination) { x.config = errors.New("agent.yaml:3: no\nagent.yaml:4: no") }, "configuration", stateBad, "agent.yaml:3"},
		{"more than the cap lets through", func(x *examination) {
			x.agent.Index, x.drain.MaxBytesPerSecond = &api.Index{Blocks: 7, Bytes: 259 << 20}, 1<<20
		}, "cap", stateWarn, "1.0 MiB a second carry 110 MiB in the 1m50s that ec2 gives to send in: 259 MiB at least are here"},
		{"as much as the cap lets through", func(x *examination) {
			x.agent.Index, x.drain.MaxBytesPerSecond = &api.Index{Blocks: 7, Bytes: 110 << 20}, 1<<20
		}, "", "", ""},
		{"Google gives less", func(x *examination) {
			x.firmware, x.provider, x.agent.Provider = "gce", "gce", "gce"
			x.agent.Index, x.drain.MaxBytesPerSecond, x.drain.Tail = &api.Index{Blocks: 7, Bytes: 110 << 20}, 1<<20, time.Minute // of which half of the notice counts
		}, "cap", stateWarn, "carry 15.0 MiB in the 15s that gce gives"},
		{"no stores", func(x *examination) { x.stores = nil }, "stores", stateWarn, "this node carries nothing of its own"},
		{"a store whose directory is absent", func(x *examination) { x.stores[0].absent = []string{"/mnt/d0/cache"} }, "store cache", stateWarn, "not there: /mnt/d0/cache"},
		{"a store that the unit hides", func(x *examination) { x.stores[0].closed = errors.New("/home/a is there, and hidden from the agent") }, "store cache", stateBad, "ProtectHome=no"},
		{"a store with nothing in it", func(x *examination) { x.stores[0].bare = true }, "store cache", stateWarn, "/mnt/d0/cache: nothing is there"},
	} {
		x := well()
		row.amiss(x)
		var found []string
		for _, f := range x.diagnose() {
			if f.State == stateOK || f.State == stateUnknown && row.state != stateUnknown {
				continue
			}
			found = append(found, fmt.Sprintf("%s %s: %s -> %s", f.State, f.Check, f.Found, f.Remedy))
			if f.Check != row.check || f.State != row.state || !strings.Contains(f.Found+" "+f.Remedy, row.words) || f.Remedy == "" {
				t.Errorf("%s: found %s %s: %s -> %s, want %s %s with %q and a remedy", row.name, f.State, f.Check, f.Found, f.Remedy, row.state, row.check, row.words)
			}
		}
		if (len(found) == 0) != (row.check == "") {
			t.Errorf("%s: found %q, want %q", row.name, found, row.check)
		}
	}
}

// On a host with only a coordinator doctor does not ask for an agent, and on a sidecar's it examines the sidecar.
func TestDoctorWithoutAnAgent(t *testing.T) {
	dir := t.TempDir()
	if got, want := ofThisHost(filepath.Join(dir, "agent.yaml")), filepath.Join(dir, "agent.yaml"); got != want {
		t.Errorf("no files: got %s, want %s", got, want)
	}
	for _, kind := range []string{"coordinator", "sidecar", "agent"} { // the last one written comes first
		want := filepath.Join(dir, kind+".yaml")
		if err := os.WriteFile(want, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := ofThisHost(filepath.Join(dir, "agent.yaml")); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for _, row := range []struct {
		state string
		left  time.Duration
		want  string
	}{
		{"active", 300 * 24 * time.Hour, "[agent:ok certificate:ok unit:ok clock:ok]"},
		{"failed", 300 * 24 * time.Hour, "[agent:ok certificate:ok unit:bad clock:ok]"},
		{"active", 24 * time.Hour, "[agent:ok certificate:bad unit:ok clock:ok]"},
	} {
		x := well()
		x.kind, x.agent, x.agentErr = "coordinator", nil, errors.New("there is no such socket")
		x.host.Locks, x.host.Unit.ActiveState = nil, row.state
		x.certEnds = time.Now().Add(row.left)
		var got []string
		for _, f := range x.diagnose() {
			got = append(got, f.Check+":"+f.State)
			if f.State == stateBad && f.Remedy == "" {
				t.Errorf("%+v has no remedy", f)
			}
		}
		if fmt.Sprint(got) != row.want {
			t.Errorf("unit %s, certificate for %s: got %v, want %s", row.state, row.left, got, row.want)
		}
	}
}

// The state of a store follows from its directories: one that is missing counts, and so do files in any of them.
func TestLookAtStores(t *testing.T) {
	dir := t.TempDir()
	full, bare, absent, file := filepath.Join(dir, "full"), filepath.Join(dir, "bare"), filepath.Join(dir, "absent"), filepath.Join(dir, "full", "part-0")
	for _, d := range []string{full, filepath.Join(bare, ".lifeboat-staging"), filepath.Join(bare, "lost+found")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for want, paths := range map[string][]string{
		"[] bare":           {bare},
		"[] in use":         {bare, full},
		"[absent] bare":     {absent, bare},
		"[absent] in use":   {full, absent},
		"[] cannot be read": {bare, file},
	} {
		l := lookAtStores(t.Context(), []agent.Store{{Name: "cache", Paths: paths}}, "")[0]
		found := map[bool]string{true: "bare", false: "in use"}[l.bare]
		if l.err != nil {
			found = "cannot be read"
		}
		for i := range l.absent {
			l.absent[i] = filepath.Base(l.absent[i])
		}
		if got := fmt.Sprint(l.absent, " ", found); got != want {
			t.Errorf("%v: got %s, want %s", paths, got, want)
		}
	}
}

// A disk that hangs hides neither other stores, nor a missing directory of its own store, nor a workload.
func TestDoctorSeesWhatIsBesideADiskThatHangs(t *testing.T) {
	f := newFleet(t, false)
	hangs, well, absent := filepath.Join(f.dir, "hangs"), filepath.Join(f.dir, "well"), filepath.Join(f.dir, "absent")
	if err := errors.Join(syscall.Mkfifo(hangs, 0o600), os.MkdirAll(filepath.Join(well, "part-0"), 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // unblocks the readers of the pipe
		if f, err := os.OpenFile(hangs, os.O_RDWR, 0); err == nil {
			f.Close()
		}
	})
	f.put(t, "agent.yaml", fmt.Sprintf(`coordinators: ["127.0.0.1:7411"]
listen: {peer: "127.0.0.1:7412"}
tls: {dev_insecure: true}
cloud: {provider: none}
stores: [{name: ill, kind: cache, layout: files, paths: [%s, %s]}, {name: well, kind: cache, layout: files, paths: [%s]}]
workloads: [{name: engine, type: match, match: {comm: nobody-is-named-so}}]
`, hangs, absent, well))
	x := examine(t.Context(), &reach{socket: f.socket}, filepath.Join(f.dir, "agent.yaml"), true)
	if x.config != nil || len(x.stores) != 2 || len(x.told) != 1 {
		t.Fatalf("got %v, %v, %v", x.config, x.stores, x.told)
	}
	if ill := x.stores[0]; ill.err == nil || !strings.Contains(ill.err.Error(), "hangs: no answer in time") || !slices.Equal(ill.absent, []string{absent}) {
		t.Errorf("of the store that hangs: got %v, %q absent", ill.err, ill.absent)
	}
	if well := x.stores[1]; well.err != nil || well.bare {
		t.Errorf("of the one beside it: got %v, bare %t, want it in use", well.err, well.bare)
	}
	for _, d := range x.told[0].doubts {
		if d.Bad {
			t.Errorf("of the workload: got %q", d.Found)
		}
	}
}

// An agent whose certificate has ended, or is not there, does not start. Doctor says so, not only that it is to be started; and
// not that its file is missing, where it looks for the file by itself.
func TestDoctorSeesThatTheAgentHasNoCertificate(t *testing.T) {
	f := newFleet(t, false)
	f.put(t, "agent.yaml", `coordinators: ["10.0.0.1:7411"]
tls: {ca: ca.pem, cert: node.pem, key: node.key}
cloud: {provider: none}
`)
	for _, given := range []bool{true, false} {
		x := examine(t.Context(), &reach{socket: f.socket}, filepath.Join(f.dir, "agent.yaml"), given)
		if all := x.diagnose(); all[0].Check != "configuration" || !strings.Contains(all[0].Found, "ca.pem: no such file") || x.unset != "" {
			t.Errorf("given %t: got %+v, no %q, want that the certificate is not there", given, all[0], x.unset)
		}
	}
}

// A directory that the agent's unit hides from it is told apart from one that does not exist.
func TestDoctorSeesWhatTheAgentSees(t *testing.T) {
	root := t.TempDir() // of an agent that sees nothing of ours
	here := t.TempDir()
	for _, c := range []struct {
		root, path string
		closed     bool
	}{{root, here, true}, {"/proc/self/root", here, false}, {"", here, false}, {filepath.Join(root, "gone"), here, false}, {root, filepath.Join(here, "absent"), false}} {
		l := lookAtStores(t.Context(), []agent.Store{{Name: "cache", Paths: []string{c.path}}}, c.root)[0]
		if (l.closed != nil) != c.closed {
			t.Errorf("%s below %q: got %v, want it closed: %t", c.path, c.root, l.closed, c.closed)
		}
	}
	remarks := strings.Join(closedRemarks([]string{"/home/a/cache", "/homes/a", "/mnt/d0", "/usr"}), "\n")
	if strings.Count(remarks, "\n") != 1 || !strings.Contains(remarks, "/home/a/cache: ") || !strings.Contains(remarks, "/usr: ") {
		t.Errorf("got %q, want a remark on what is in /home and on /usr", remarks)
	}
}

// The index's counts are shown for the store if there is only one store of plain files.
func TestDoctorCountsBlocks(t *testing.T) {
	x := well()
	x.agent.Index = &api.Index{Blocks: 7, Bytes: 1 << 20, Age: durationpb.New(time.Second)}
	found := func() (words string) {
		for _, f := range x.diagnose() {
			if f.Check == "store cache" {
				words = f.Found
			}
		}
		return words
	}
	if got, want := found(), "/mnt/d0/cache: 7 blocks, 1.0 MiB, as of 1.0s ago"; got != want {
		t.Errorf("one store: got %q, want %q", got, want)
	}
	x.stores = append(x.stores, storeLook{Store: agent.Store{Name: "more", Layout: "files"}})
	if got, want := found(), "/mnt/d0/cache"; got != want {
		t.Errorf("two stores: got %q, want %q", got, want)
	}
}

// The settings file says which socket to ask. Agents' and sidecars' files are told apart.
func TestDoctorGoesByTheFile(t *testing.T) {
	f := newFleet(t, false)
	f.put(t, "agent.json", `{"node": "host-a", "sidecar": true}`)
	f.put(t, "plain", "no program")
	settings := fmt.Sprintf("node: {name: host-a}\nlisten: {socket: %s%%s}\ncloud: {provider: none}\n", f.socket)
	program := func(name, path string) string {
		return fmt.Sprintf("  - {name: %s, hook: {command: [%s]}}\n", name, path)
	}
	f.put(t, "sidecar.yaml", fmt.Sprintf(settings, "")+"actions:\n"+program("there", "/bin/sh")+program("gone", "/nowhere/drain")+program("plain", filepath.Join(f.dir, "plain"))+
		"  - {name: agent, agent: {socket: /nowhere/agent.sock}}\n")
	f.put(t, "agent.yaml", fmt.Sprintf(settings, ", peer: 127.0.0.1:7412")+`coordinators: ["127.0.0.1:7411"]
tls: {dev_insecure: true}
workloads: [{name: engine, type: match, match: {comm: nobody-is-named-so}, tell: {hook: {command: [/nowhere/drain]}}}]
`)
	for file, want := range map[string][]string{
		"sidecar.yaml": {"ok agent host-a", "ok action there run /bin/sh: nothing", "bad action gone /nowhere/drain cannot be run: ", "bad action plain " + filepath.Join(f.dir, "plain") + " cannot be run: ", "warn action agent the agent: "},
		"agent.yaml":   {"ok agent host-a", "bad workload engine /nowhere/drain cannot be run: "},
	} {
		code, stdout, stderr := lifeboat(t, "doctor", "-o", "json", "--config", filepath.Join(f.dir, file))
		var findings []finding
		if err := json.Unmarshal([]byte(stdout), &findings); err != nil || code != exitFailed {
			t.Fatalf("%s: exit code %d, %v, %s", file, code, err, stderr)
		}
		for _, w := range want {
			if !slices.ContainsFunc(findings, func(f finding) bool { return strings.HasPrefix(f.State+" "+f.Check+" "+f.Found, w) }) {
				t.Errorf("%s: got %q, want one to begin with %q", file, findings, w)
			}
		}
		if slices.ContainsFunc(findings, func(f finding) bool { return f.Check == "configuration" }) {
			t.Errorf("%s: got %q, want no fault in it", file, findings)
		}
	}
	f.put(t, "joins.yaml", fmt.Sprintf("coordinators: ['10.0.0.1:7411']\ndata_dir: %s\nlisten: {socket: /nowhere/lb.sock}\njoin: {token_file: token}\n", f.dir))
	if _, stdout, _ := lifeboat(t, "doctor", "-o", "json", "--config", filepath.Join(f.dir, "joins.yaml")); !strings.Contains(stdout, "no good certificate ("+filepath.Join(f.dir, "tls", "node.pem")) {
		t.Errorf("got %s, want that the agent has no certificate yet", stdout)
	}
	if _, stdout, _ := lifeboat(t, "doctor", "-o", "json", "--config", filepath.Join(f.dir, "agent.yaml"), "--socket", "/nowhere/lb.sock"); !strings.Contains(stdout, "none answers on /nowhere/lb.sock") {
		t.Errorf("got %s, want the socket of the flag", stdout)
	}
}

// What an interrupted doctor did not come to ask is not bad.
func TestDoctorThatIsInterruptedFindsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	if code := run(ctx, []string{"doctor"}, &stdout, &stderr); code != exitFailed || stdout.Len() > 0 || stderr.String() != "lifeboat: doctor: context canceled\n" {
		t.Errorf("got code %d, %s%s", code, &stdout, &stderr)
	}
}

// A node whose coordinator is of another fleet needs that fleet's CA, and cannot count on peers that it heard of before. If it is the
// coordinator that refuses, the node's certificate may as well be revoked.
func TestDoctorOfAnotherFleet(t *testing.T) {
	for _, words := range []string{`certificate is not signed by our CA: peer claims to be "coordinator c1", want any coordinator`, api.Plain(errors.New("error reading server preface: remote error: tls: bad certificate")).Error()} {
		x := well()
		x.agent.CoordinatorTrouble = "coordinator 10.0.0.1:7411: beat: " + words
		found := map[string]finding{}
		for _, f := range x.diagnose() {
			found[f.Check] = f
		}
		if f := found["coordinator"]; f.State != stateBad || !strings.Contains(f.Remedy, "ca.pem") {
			t.Errorf("%s: got %+v, want it to name ca.pem", words, f)
		} else if refuses := strings.Contains(words, "refuses"); strings.Contains(f.Remedy, "lifeboat revoke") != refuses {
			t.Errorf("%s: got %+v, want it to say that the certificate may be revoked: %t", words, f, refuses)
		}
		if f := found["peers"]; f.State != stateWarn || !strings.Contains(f.Found, "1 peer with room for 1.0 GiB, as last heard of") {
			t.Errorf("%s: got %+v, want a warning", words, f)
		}
	}
}
