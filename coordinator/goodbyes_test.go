package coordinator

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/lifeboat/lifeboat/api"
)

// A whole zone says goodbye at once: many goodbyes go into the log with one write, and the file of each stays.
func TestGoodbyesShareWrites(t *testing.T) {
	const nodes = 200
	cfg := Default()
	cfg.Name, cfg.DataDir = "c", t.TempDir()
	f := opened(t, cfg)
	if err := f.takeOver(t.Context(), f.ledger.term()); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("n%03d", i))
	}
	if _, err := f.do(command{Do: doRegister, Nodes: names, Facts: &facts{Incarnation: "i", PeerAddress: "n:1"}}); err != nil {
		t.Fatal(err)
	}
	s := &membership{fleet: f}
	before := writes(t, f.ledger.store)
	var leaving, written sync.WaitGroup
	written.Add(nodes)
	for _, name := range names {
		leaving.Go(func() {
			summary := &api.ManifestSummary{Node: name, Incarnation: "i", Incident: "inc"}
			w, err := f.manifests.begin(name, summary)
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
	if n := writes(t, f.ledger.store) - before; n > nodes/2 {
		t.Errorf("got %d writes of the log for %d goodbyes, want a fraction", n, nodes)
	}
	files, err := os.ReadDir(filepath.Join(cfg.DataDir, "manifests"))
	if err != nil || len(files) != nodes {
		t.Errorf("got %d manifests (%v), want %d", len(files), err, nodes)
	}
}
