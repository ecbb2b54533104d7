package migration

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// Spark's shuffle services remove the data and index files of a shuffle that is over, and do not know of checksum files. Those are
// removed too, whoever notices first, and so are the directories that were made for them.
func TestNothingIsLeftOfAMapOutputThatAnEngineRemoved(t *testing.T) {
	const app = "application_1_1"
	for name, asked := range map[string]bool{"a reader meets it": true, "nobody asks": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, n := newNode(t, "a", with(sparkStore, "d0")), newNode(t, "b", with(sparkStore, "d0"))
				writeMapOutput(t, []string{filepath.Join(a.Dir, "d0", app, "blockmgr-x")}, 1, 2, 1000)
				a.drain(t, t.Context(), n)
				n.Reopen(t)
				files := func(what string) []string {
					all, err := filepath.Glob(filepath.Join(n.Dir, "d0", app, "blockmgr-lifeboat", what))
					if err != nil {
						t.Fatal(err)
					}
					return all
				}
				n.running(t, func() {
					time.Sleep(5 * time.Minute)
					removed := append(files("??/*.data"), files("??/*.index")...)
					if len(removed) != 2 || len(files("??/*.checksum.*")) != 1 {
						t.Fatalf("it landed as %v", files("??/*"))
					}
					for _, f := range removed {
						if err := os.Remove(f); err != nil {
							t.Error(err)
						}
					}
					if asked {
						n.Reader().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodHead, "/blocks/spark/"+app+"/shuffle_1_2_0.index", nil))
						time.Sleep(time.Second)
					} else {
						time.Sleep(5 * time.Minute)
					}
				})
				if left := files("*"); len(left) > 0 || len(n.Gone) != 1 || n.Why != "an engine removed or replaced its files there" {
					t.Errorf("it left %v, and told of %v, %q", left, n.Gone, n.Why)
				}
			})
		})
	}
}
