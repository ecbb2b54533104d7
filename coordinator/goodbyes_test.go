package coordinator

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// A whole zone says goodbye at once: many goodbyes share one write of the log, and the file of each stays.
func TestGoodbyesShareWrites(t *testing.T) {
	const nodes = 200
	f := leading(t)
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("n%03d", i))
	}
	if _, err := f.do(registry.Command{Do: registry.DoRegister, Nodes: names, Facts: &registry.Facts{Incarnation: "i", PeerAddress: "n:1"}}); err != nil {
		t.Fatal(err)
	}
	s := &membership{fleet: f}
	// writes returns how often the log was written.
	writes := func() (n int) {
		if err := f.ledger.store.DB().View(func(tx *bolt.Tx) error { n = tx.ID(); return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := writes()
	var leaving, written sync.WaitGroup
	written.Add(nodes)
	for _, name := range names {
		leaving.Go(func() {
			summary := &api.ManifestSummary{Node: name, Incarnation: "i", Incident: "inc"}
			w, err := f.accounts.files.begin(name, summary)
			if err == nil {
				err = w.commit()
			}
			written.Done()
			written.Wait() // a busy machine would have them come one by one
			if err == nil {
				err = s.end(name, summary, w)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	leaving.Wait()
	if n := writes() - before; n > nodes/2 {
		t.Errorf("got %d writes of the log for %d goodbyes, want a fraction", n, nodes)
	}
	files, err := os.ReadDir(filepath.Join(f.cfg.DataDir, "manifests"))
	if err != nil || len(files) != nodes {
		t.Errorf("got %d manifests (%v), want %d", len(files), err, nodes)
	}
}

// A coordinator drops the lost blocks of a manifest that a later one of the same drain replaced, from its answers and from memory, although
// it may not remove the file yet.
func TestManifestThatWasReplacedIsForgotten(t *testing.T) {
	m, err := openManifests(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	write := func(ids ...string) *registry.ManifestRef {
		t.Helper()
		w, err := m.begin("a", &api.ManifestSummary{Node: "a"})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if err := w.add(&api.ManifestEntry{Id: id, Outcome: "lost"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.commit(); err != nil {
			t.Fatal(err)
		}
		ref := &registry.ManifestRef{File: w.name, Node: "a", Lost: int64(len(ids)), At: time.Now()}
		m.keep(ref, w.lost)
		return ref
	}
	was, is := write("cache/-/x", "cache/-/y"), write("cache/-/y")
	m.forget([]*registry.ManifestRef{is})
	if ref := m.namedLost("cache/-/x"); ref != nil {
		t.Errorf("x is lost as %s says, which was replaced", ref.File)
	}
	if ref := m.namedLost("cache/-/y"); ref != is {
		t.Errorf("y: got %+v, want what names it now", ref)
	}
	if len(m.read) != 1 || len(m.files) != 1 || len(m.lost) != 1 {
		t.Errorf("got %d files, %d read, %d lost, want what counts alone", len(m.files), len(m.read), len(m.lost))
	}
	if !m.has(was.File) {
		t.Error("the file is gone, which another coordinator may fetch")
	}
}
