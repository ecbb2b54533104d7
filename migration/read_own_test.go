package migration

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// A block came home to where it was born, and what landed there is of no use, or on a disk that is away: the store has it itself, and
// nobody need compute it anew.
func TestWhatCameHomeBrokenIsReadFromTheStore(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, n *node, content []byte){
		"in its first chunk": func(t *testing.T, n *node, content []byte) {
			flip(t, filepath.Join(n.dir, "vault/segments"), content, 5)
		},
		"all of it": func(t *testing.T, n *node, _ []byte) {
			if err := os.RemoveAll(filepath.Join(n.dir, "vault/segments")); err != nil {
				t.Fatal(err)
			}
		},
		"its disk is silent": func(_ *testing.T, n *node, _ []byte) {
			n.disks = silentAt{orWell(nil), filepath.Join(n.dir, "vault")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := contentOf("x", 100)
				a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b", with(filesStore, "cache"))
				write(t, filepath.Join(a.dir, "cache/x"), x)
				newTrip(t, a, b).run(within(t, time.Minute))
				newTrip(t, b, a).run(within(t, time.Minute))
				if landed := a.landedBlocks(); len(landed) != 1 {
					t.Fatalf("%d blocks came home", len(landed))
				}
				spoil(t, a, x)
				var suspects []BlockID
				rd := a.reader()
				rd.Broken, rd.Log = func(id BlockID) { suspects = append(suspects, id) }, slog.New(slog.DiscardHandler)
				w := httptest.NewRecorder()
				rd.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/blocks/cache/-/x", nil))
				if w.Code != http.StatusOK || !bytes.Equal(w.Body.Bytes(), x) {
					t.Errorf("got %d: %s", w.Code, w.Body)
				}
				if rotten := name != "its disk is silent"; (len(suspects) == 1) != rotten {
					t.Errorf("%v are to be looked at", suspects)
				}
			})
		})
	}
}

// silentAt is a machine of which one disk does not answer.
type silentAt struct {
	Disks
	dir string
}

func (d silentAt) Readable(dir string) bool { return dir != d.dir }
