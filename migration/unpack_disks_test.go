package migration

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// One disk of a Spark store takes no files. Those of the others are made all the same, and its own when it takes some again.
func TestOneDiskOfAStoreTakesNoFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := onDisks(t, "b", []inventory.StoreConfig{with(sparkStore, "d0", "d1")}, "v")
		b.packs = true
		var log notes
		b.tune = func(cfg *ReceiverConfig) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) }
		full := b.stores[0].Paths[0]
		a := newNode(t, "a", with(sparkStore, "d0"))
		const outputs = 40
		files, bound := 0, int64(0) // to the disk that is full
		for i := range outputs {
			there := false
			for name := range writeMapOutput(t, []string{filepath.Join(a.dir, "d0/application_1_1/blockmgr-x")}, 1, i, 100, 200) {
				root, _ := b.stores[0].Shape.Place(b.stores[0], inventory.BlockID(fmt.Sprintf("spark/application_1_1/shuffle_1_%d_0", i)), name)
				files, there = files+1, there || root == 0
			}
			if there {
				bound++
			}
		}
		a.drain(t, within(t, time.Minute), b)
		wantWaiting(t, b, outputs, 0)
		f.set(f.full, full, true)
		_, stop := b.receiving(t)
		defer stop()
		time.Sleep(unpackPatience + lull)
		made := func(dir string) int {
			found, err := filepath.Glob(filepath.Join(b.dir, dir, "*", "*", "*", "shuffle_1_*"))
			if err != nil {
				t.Fatal(err)
			}
			return len(found)
		}
		if waiting := b.receiver.Unpacking().Waiting.Blocks; made("d0") != 0 || made("d1") == 0 || waiting != bound || bound == outputs {
			t.Errorf("with a full disk: %d files on it, %d on the other, and %d blocks wait; want %d of %d to wait", made("d0"), made("d1"), waiting, bound, outputs)
		}
		time.Sleep(3 * unpackAgain)
		if got := log.count("no files can be made of some blocks"); got != 1 {
			t.Errorf("said %d times that no files can be made", got)
		}
		f.set(f.full, full, false)
		time.Sleep(time.Second)
		wantWaiting(t, b, 0, 0)
		if got := made("d0") + made("d1"); got != files {
			t.Errorf("in the end there are %d files, want %d", got, files)
		}
		f.wantNothingReserved(t)
	})
}

// carriedIn are the blocks that a scan of a store meets.
func carriedIn(t testing.TB, s *inventory.Store) (ids []inventory.BlockID) {
	t.Helper()
	for it, err := range s.Scan(t.Context()) {
		if err != nil || !it.Carried() {
			t.Errorf("got %+v, %v", it, err)
		}
		ids = append(ids, it.ID)
	}
	return ids
}
