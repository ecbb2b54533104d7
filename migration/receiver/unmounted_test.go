package receiver

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// A directory in which nothing has landed is as it should be, and so is an empty one that is mounted.
func TestEmptyDirectoriesThatTakeBlocks(t *testing.T) {
	for name, mounted := range map[string]bool{"new": false, "formatted anew": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "b", with(placeStore, "cache"))
			if mounted {
				wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", PackedBytes+1))))
			}
			n.Unmounted(t)
			if mounted {
				n.Stores[0].System++
			}
			wantDurable(t, landAll(t, n, blockFrames(2, "cache/-/y", contentOf("y", PackedBytes+1))))
			if _, err := os.Stat(filepath.Join(n.Dir, "cache/y")); err != nil {
				t.Error(err)
			}
		})
	}
}

// Blocks landed in place on a disk that is not mounted when the agent starts. They are not gone, and the landing of others
// does not make them so.
func TestWhatLandedOnADiskThatIsNotMountedIsNotForgotten(t *testing.T) {
	for name, size := range map[string]int{"small": 1000, "large": PackedBytes + 1} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "b", with(placeStore, "cache"))
			x, y := blockFrames(1, "cache/-/x", contentOf("x", size)), blockFrames(2, "cache/-/y", contentOf("y", size))
			wantDurable(t, landAll(t, n, x))
			n.unpack()
			mount := n.Unmounted(t)
			wantDurable(t, landAll(t, n, y)) // elsewhere
			n.unpack()
			if why := n.Stores[0].Away(filepath.Join(n.Dir, "cache")); why == nil || !strings.Contains(why.Error(), "not mounted") {
				t.Errorf("of the directory it says %v", why)
			}
			n.receiver.DropGhosts(t.Context())
			n.receiver.lookAt(t.Context(), &diskio.Work{}, "cache/-/x")
			r, err := n.Vault.Catalog.Get("cache/-/x")
			if err != nil || len(n.Gone) > 0 {
				t.Fatalf("its record: %v; told that %v are gone, since %q", err, n.Gone, n.Why)
			}
			if got := n.asks("cache/-/x", "a", r.Tag()); got != http.StatusServiceUnavailable {
				t.Errorf("its source has it forgotten: got %d, want 503", got)
			}
			if v := landAll(t, n, x); v[0].Code == wire.VerdictDurable || !strings.Contains(v[0].Reason, "not mounted") {
				t.Errorf("it came again: got %+v, want it refused", v[0])
			}
			rd := n.Reader()
			rd.Fetch = &reading.Fetcher{Locate: func(context.Context, inventory.BlockID, bool) (reading.Location, error) {
				return reading.Location{}, nil
			}}
			for id, want := range map[string]int{"cache/-/x": 503, "cache/-/y": 200, "cache/-/z": 404} {
				if got, _, _ := get(t, rd, id, ""); got != want {
					t.Errorf("%s: got %d, want %d", id, got, want)
				}
			}
			mount()
			n.receive(t)
			n.receiver.DropGhosts(t.Context())
			if got := n.Content(t, "cache/-/x"); !bytes.Equal(got, contentOf("x", size)) {
				t.Error("when it is mounted again, it is other bytes")
			}
			if why := n.Stores[0].Away(filepath.Join(n.Dir, "cache")); why != nil || n.Vault.Count().Blocks != 2 {
				t.Errorf("mounted again: %v; %+v rest there", why, n.Vault.Count())
			}
		})
	}
}
