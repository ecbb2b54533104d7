package migration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
)

// There is not enough time to tell peers of all copies that are out of date. They are told first of blocks that changed: an old copy
// is served beside the new one, and gives readers old bytes. Deleted blocks can wait.
func TestPeersForgetWhatChangedBeforeWhatWasDeleted(t *testing.T) {
	tests := map[string]func(t *testing.T, a, b, c *node, change, remove func()) *trip{
		"in this drain": func(t *testing.T, a, b, c *node, change, remove func()) *trip {
			newTrip(t, a, b).run(within(t, time.Minute))
			remove()
			change()
			return newTrip(t, a, c)
		},
		"in an earlier run, whose peer was away": func(t *testing.T, a, b, c *node, change, remove func()) *trip {
			newTrip(t, a, b).run(within(t, time.Minute))
			change()
			b.Refuse = "too old"
			tr := newTrip(t, a, c)
			tr.forgetful(b)
			tr.run(within(t, time.Minute))
			b.Refuse = ""
			remove()
			return newTrip(t, a, c)
		},
		"in a drain that was withdrawn": func(t *testing.T, a, b, c *node, change, remove func()) *trip {
			before := newTrip(t, a, b)
			before.run(within(t, time.Minute))
			remove()
			change()
			tr := newTrip(t, a, c)
			tr.cfg.Dir, tr.cfg.Earlier = filepath.Join(a.Dir, "another-incident"), []string{before.cfg.Dir}
			return tr
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _ := cached(t, 60, 500)
				b, c := newNode(t, "b"), newNode(t, "c")
				each := func(from int, do func(path string)) func() {
					return func() {
						for i := from; i < 60; i += 3 {
							do(filepath.Join(a.Dir, "cache", fmt.Sprintf("f-%04d", i)))
						}
					}
				}
				change := func(path string) { write(t, path, []byte("newer")) }
				remove := func(path string) {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				}
				tr := prepare(t, a, b, c, each(0, change), each(1, remove))
				tr.forgetful(b)
				forget := tr.cfg.Forget
				tr.cfg.Forget = func(ctx context.Context, h reading.Holder, id inventory.BlockID, tag string) error {
					time.Sleep(mostForgetting * forgetLanes / 25) // there is time for 25 of 40
					return forget(ctx, h, id, tag)
				}
				tr.run(within(t, time.Minute))
				for i := 0; i < 60; i += 3 {
					if id := inventory.BlockID(fmt.Sprintf("cache/-/f-%04d", i)); b.Has(id) {
						t.Errorf("b still serves %s as it was", id)
					}
				}
				if len(b.Gone) <= 20 {
					t.Errorf("b forgot %d blocks, want some of those that were deleted among them", len(b.Gone))
				}
			})
		})
	}
}
