package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/lifeboat/lifeboat/dev/corpus"
)

// lifeboat is the contender: a fleet of two agents and a coordinator, each a process of its own. The source says DecommissionSelf;
// the sink is its only peer.
type lifeboat struct {
	label  string // its name among the contenders
	land   string // how blocks land in the sink's store; empty: vault
	binary string
	pki    string
}

// newLifeboat makes the certificates for a fleet of these nodes.
func newLifeboat(ctx context.Context, binary, work string, nodes ...string) (*lifeboat, error) {
	l := &lifeboat{label: ours, binary: binary, pki: filepath.Join(work, "pki")}
	if err := l.issue(ctx, nodes...); err != nil {
		return nil, err
	}
	return l, nil
}

// issue makes the certificates of a fleet.
func (l *lifeboat) issue(ctx context.Context, nodes ...string) error {
	calls := [][]string{{"init", "--dir", l.pki}, {"issue", "--dir", l.pki, "--coordinator", "coordinator"}}
	for _, node := range nodes {
		calls = append(calls, []string{"issue", "--dir", l.pki, "--node", node})
	}
	for _, args := range calls {
		if _, _, err := command(ctx, l.binary, append([]string{"tls"}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

func (l *lifeboat) name() string { return l.label }

// fleet is the processes of one move.
type fleet struct {
	*lifeboat
	dir                       string
	coordinator, source, sink *daemon
	unpacks                   bool // the sink makes files of the blocks that it has given receipts for
	relays                    bool // the source has blocks that came from another node: its index may have looked at the store before they came
}

func (l *lifeboat) move(ctx context.Context, from source, into string) (out outcome, err error) {
	f := &fleet{lifeboat: l, dir: into, unpacks: l.land == "place"}
	defer func() { err = errors.Join(err, f.stop()) }()
	if err := f.start(ctx, from); err != nil {
		return out, err
	}
	return f.leave(ctx, from)
}

// leave has the source leave, and measures that.
func (f *fleet) leave(ctx context.Context, from source) (out outcome, err error) {
	if err := from.ready(); err != nil { // once more: starting the fleet took so long that the host may have taken back free memory
		return out, err
	}
	g := follow(ctx, f.source.cmd.Process.Pid, f.sink.cmd.Process.Pid)
	defer g.close()
	cpu := func() time.Duration {
		return g.now(f.source.cmd.Process.Pid).cpu + g.now(f.sink.cmd.Process.Pid).cpu
	}

	before, began := cpu(), time.Now()
	answer, _, err := command(ctx, f.binary, "decommission", "--self", "--wait", "--socket", f.socket("source"), "-o", "json", "--reason", "bench")
	out.told = time.Since(began)
	out.cpu = cpu() - before
	if err != nil {
		return out, f.source.trouble(err)
	}
	started, finished, err := readManifest(answer, from, f.relays)
	if err != nil {
		return out, f.source.trouble(err)
	}
	last, err := f.lastReceipt()
	if err != nil {
		return out, err
	}
	out.durable, out.ended, out.drain = last.Sub(began), finished.Sub(began), finished.Sub(started)
	out.sent = out.durable // a receipt is given for what is durable
	if f.unpacks {
		u, err := f.unpacked(ctx, from, g, last)
		if err != nil {
			return out, err
		}
		out.unpacking = &u
	}
	out.rss = [2]int64{g.now(f.source.cmd.Process.Pid).rss, g.now(f.sink.cmd.Process.Pid).rss}
	if _, err := f.source.stop(); err != nil { // it has its own copies still, and the sink would fetch from it what the sink itself lacks
		return out, err
	}
	return out, f.check(ctx, from)
}

// lastReceipt is when the last line was added to the source's ledger of moved blocks. The drain itself ends later: it looks once
// more for files that were written meanwhile, which no other contender does.
func (f *fleet) lastReceipt() (time.Time, error) {
	pattern := filepath.Join(f.data("source"), "incidents", "*", "moved.jsonl")
	accounts, err := filepath.Glob(pattern)
	if err != nil {
		return time.Time{}, err
	}
	if len(accounts) != 1 {
		return time.Time{}, fmt.Errorf("%d files are called %s: want one, the account of what was moved", len(accounts), pattern)
	}
	info, err := os.Stat(accounts[0])
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// readManifest returns when the drain began and ended. It is an error unless every block was moved. A node that relays moves one
// block more than the corpus has: the account that the other node left with it.
func readManifest(answer []byte, from source, relays bool) (started, finished time.Time, err error) {
	var m struct {
		StartedAt  time.Time                 `json:"started_at"`
		FinishedAt time.Time                 `json:"finished_at"`
		Blocks     struct{ Moved, Lost int } `json:"blocks"`
		Bytes      struct{ Moved int64 }     `json:"bytes"`
	}
	if err := json.Unmarshal(answer, &m); err != nil {
		return started, finished, fmt.Errorf("read the manifest %q: %w", answer, err)
	}
	all := m.Blocks.Moved == from.files.Blocks && m.Bytes.Moved == from.files.Bytes ||
		relays && m.Blocks.Moved == from.files.Blocks+1 && m.Bytes.Moved > from.files.Bytes
	if !all || m.Blocks.Lost != 0 {
		return started, finished, fmt.Errorf("moved %d blocks of %d (%d bytes of %d), lost %d",
			m.Blocks.Moved, from.files.Blocks, m.Bytes.Moved, from.files.Bytes, m.Blocks.Lost)
	}
	return m.StartedAt, m.FinishedAt, nil
}

func (f *fleet) socket(node string) string { return filepath.Join(f.dir, node+".sock") }

const storeName = "bench"

func (f *fleet) start(ctx context.Context, from source) (err error) {
	ports, err := freePorts(6)
	if err != nil {
		return err
	}
	if err := f.coordinate(ctx, ports[0], ports[1]); err != nil {
		return err
	}
	empty := filepath.Join(f.dir, "store")
	if f.sink, err = f.daemon(ctx, "agent", "sink", f.agent("sink", ports[0], ports[2], ports[3], f.land, empty)); err != nil {
		return err
	}
	if f.source, err = f.daemon(ctx, "agent", "source", f.agent("source", ports[0], ports[4], ports[5], f.land, from.dir)); err != nil {
		return err
	}
	return f.settled(ctx, "source", 1, from.files)
}

// settled waits until the agent of that name, which is the source, knows its peers and has indexed its own store.
func (f *fleet) settled(ctx context.Context, name string, peers int, files corpus.Corpus) error {
	patience := 30*time.Second + time.Duration(files.Blocks)*100*time.Microsecond // the index is made with a fifth of a processor
	return f.source.within(ctx, patience, "it knows its peers and its own store", func() bool {
		answer, _, err := command(ctx, f.binary, "status", "--socket", f.socket(name), "-o", "json")
		var s struct {
			Peers []struct {
				Room int64 `json:"room_bytes"`
			} `json:"peers"`
			Index *struct{ Blocks int } `json:"index"` // nil: an older binary, which looks only when the notice comes
		}
		switch {
		case err != nil || json.Unmarshal(answer, &s) != nil || len(s.Peers) != peers || s.Peers[0].Room < files.Bytes:
			return false
		case s.Index == nil || s.Index.Blocks == files.Blocks || f.relays:
			return true
		}
		time.Sleep(time.Second) // the index begins when the agent has been up for 10 s; asking all the time would take processor time from it
		return false
	})
}

// coordinate starts the coordinator.
func (f *fleet) coordinate(ctx context.Context, grpc, http string) (err error) {
	f.coordinator, err = f.daemon(ctx, "coordinator", "coordinator", f.coordinatorFile(grpc, http))
	return err
}

func (f *fleet) coordinatorFile(grpc, http string) string {
	return fmt.Sprintf("name: coordinator\nlisten: {grpc: %q, http: %q}\ndata_dir: %s\n%s", grpc, http, f.data("coordinator"), f.tls("coordinator"))
}

func (f *fleet) data(name string) string { return filepath.Join(f.dir, name+".data") }

func (f *fleet) tls(name string) string {
	return fmt.Sprintf("tls: {ca: %[1]s/ca.pem, cert: %[1]s/%[2]s.pem, key: %[1]s/%[2]s.key}\n", f.pki, name)
}

// agent is the text of an agent's settings: all defaults, but for what the measurement needs.
func (f *fleet) agent(name, coordinator, peer, http, land, store string) string {
	return fmt.Sprintf(`node: {name: %s, zone: zone-%[1]s, pool: pool-%[1]s}
coordinators: [%q]
listen: {peer: %q, http: %q, socket: %s}
data_dir: %s
cloud: {provider: none}
stores:
  - {name: %s, kind: cache, layout: files, land: %s, paths: [%s]}
%s`, name, coordinator, peer, http, f.socket(name), f.data(name), storeName, cmp.Or(land, "vault"), store, f.tls(name))
}

func (f *fleet) daemon(ctx context.Context, verb, name, conf string) (*daemon, error) {
	if err := f.settings(name, conf); err != nil {
		return nil, err
	}
	return start(ctx, filepath.Join(f.dir, name+".log"), f.binary, verb, "--config", filepath.Join(f.dir, name, "lifeboat.yaml"))
}

// settings writes the file into a directory of its own: the daemon also reads conf.d beside it.
func (f *fleet) settings(name, conf string) error {
	if err := os.Mkdir(filepath.Join(f.dir, name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(f.dir, name, "lifeboat.yaml"), []byte(conf), 0o600)
}

// check reads a few blocks back from the sink, by chance: a receipt is worth nothing if the bytes are not there. The source must have
// ended.
func (f *fleet) check(ctx context.Context, from source) error {
	all := from.files.Files
	for range 3 {
		file := all[rand.IntN(len(all))]
		sum := sha256.New()
		if _, err := commandTo(ctx, sum, f.binary, "get", string(file.ID(storeName)), "--socket", f.socket("sink")); err != nil {
			return f.sink.trouble(err)
		}
		if [sha256.Size]byte(sum.Sum(nil)) != file.SHA256 {
			return fmt.Errorf("%s came back with other bytes than it had", file.Name)
		}
	}
	return nil
}

func (f *fleet) stop() error {
	var errs []error
	for _, d := range []*daemon{f.source, f.sink, f.coordinator} {
		if d != nil {
			_, err := d.stop()
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
