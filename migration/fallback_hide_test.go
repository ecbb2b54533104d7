package migration

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/lastresort"
)

// Spark reads the index in its fallback storage and then the data, and knows nothing of records. A map output was written anew, and
// only its new data got there in time: it must not be read with the index of the old one.
func TestSparkFindsNoIndexOfOtherDataInTheFallback(t *testing.T) {
	for name, second := range map[string]bool{"in time": true, "cut off": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newNode(t, "a", with(sparkStore, "d0"))
				managers := []string{filepath.Join(a.Dir, "d0/application_1_1/blockmgr-x")}
				s := newLarder()
				drain := func(dir string) {
					tr := newTrip(t, a)
					tr.cfg.Dir = filepath.Join(a.Dir, dir)
					tr.cfg.Fallback = s.as(lastresort.LayoutSpark)
					tr.run(within(t, 10*time.Second))
				}
				writeMapOutput(t, managers, 1, 0, 100, 50)
				drain("first")
				at := func(suffix string) string { return lastresort.SparkName("application_1_1", "shuffle_1_0_0"+suffix) }
				was := s.things[at(".index")]
				if was == nil {
					t.Fatal("it is not there")
				}
				time.Sleep(time.Minute)
				now := writeMapOutput(t, managers, 1, 0, 20, 300)
				if !second {
					data := false
					s.trip = func(name string) error { // s.mu is held
						if data = data || bytes.Equal(s.things[at(".data")], now["shuffle_1_0_0.data"]); data {
							return errors.New("away")
						}
						return nil
					}
				}
				drain("second")
				if got := s.things[at(".data")]; !bytes.Equal(got, now["shuffle_1_0_0.data"]) {
					t.Fatalf("got %d bytes of data, want the new ones", len(got))
				}
				want := []byte{}
				if second {
					want = now["shuffle_1_0_0.index"]
				}
				if got := s.things[at(".index")]; !bytes.Equal(got, want) {
					t.Errorf("got an index of %d bytes, want %d", len(got), len(want))
				}
			})
		})
	}
}
