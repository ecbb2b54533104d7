package migration

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
)

// A block came home to where it was born. The copy that landed there is broken, or on a disk that is away, but the store has the
// block itself: it need not be computed again.
func TestWhatCameHomeBrokenIsReadFromTheStore(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, n *node, content []byte){
		"in its first chunk": func(t *testing.T, n *node, content []byte) {
			flip(t, filepath.Join(n.Dir, "vault/segments"), content, 5)
		},
		"all of it": func(t *testing.T, n *node, _ []byte) {
			if err := os.RemoveAll(filepath.Join(n.Dir, "vault/segments")); err != nil {
				t.Fatal(err)
			}
		},
		"its disk is silent": func(_ *testing.T, n *node, _ []byte) {
			n.Disks = silentAt{diskio.OrWell(nil), filepath.Join(n.Dir, "vault")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := contentOf("x", 100)
				a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b", with(filesStore, "cache"))
				write(t, filepath.Join(a.Dir, "cache/x"), x)
				newTrip(t, a, b).run(within(t, time.Minute))
				newTrip(t, b, a).run(within(t, time.Minute))
				if landed := a.LandedBlocks(); len(landed) != 1 {
					t.Fatalf("%d blocks came home", len(landed))
				}
				spoil(t, a, x)
				var suspects []inventory.BlockID
				rd := a.Reader()
				rd.Broken, rd.Log = func(id inventory.BlockID) { suspects = append(suspects, id) }, slog.New(slog.DiscardHandler)
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

// A disk that does not answer is told once, of the disk. Those who read from it hear why, and the log does not hear of each of them.
func TestReadsFromADiskThatIsSilentAreNoNews(t *testing.T) {
	a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
	write(t, filepath.Join(a.Dir, "cache/x"), contentOf("x", 100))
	newTrip(t, a, b).run(within(t, time.Minute))
	b.Disks = silentAt{diskio.OrWell(nil), filepath.Join(b.Dir, "vault")}
	var said bytes.Buffer
	rd := b.Reader()
	rd.Log = slog.New(slog.NewTextHandler(&said, nil))
	if status, body, _ := ask(t, rd, http.MethodGet, "/blocks/cache/-/x", nil); status != http.StatusServiceUnavailable || !strings.Contains(string(body), "does not answer") {
		t.Errorf("got %d: %s", status, body)
	}
	if said.Len() > 0 {
		t.Errorf("the log says %s", said.String())
	}
}

// What has a block's name and is none is not here: a node says so to others as to its own readers, who otherwise would ask again for
// ever.
func TestWhatIsNoBlockIsKnownToNobody(t *testing.T) {
	a, b := newNode(t, "a", with(filesStore, "cache"), with(sparkStore, "spark")), newNode(t, "b")
	write(t, filepath.Join(a.Dir, "cache/dir/x"), nil)
	_, sub := inventory.SparkPlace("shuffle_0_0_0.index", 1)
	write(t, filepath.Join(a.Dir, "spark/blockmgr-1", sub, "shuffle_0_0_0.index"), []byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09"))
	for name, to := range map[string]string{"link": "dir/x", "out": "/etc", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(a.Dir, "cache", name)); err != nil {
			t.Fatal(err)
		}
	}
	f := &fleet{nodes: map[string]http.Handler{"a": a.Reader()}}
	fetch := &reading.Fetcher{Dial: f.dial, Locate: func(context.Context, inventory.BlockID, bool) (reading.Location, error) {
		return reading.Location{Candidates: holders("a")}, nil
	}}
	defer fetch.Close()
	for _, id := range []string{"cache/-/dir", "cache/-/link", "cache/-/out/hostname", "cache/-/loop/x", "spark/blockmgr-1/shuffle_0_0_0", "spark/blockmgr-1/shuffle_0_0_0.index"} {
		for _, n := range []*node{a, b} {
			rd := n.Reader()
			rd.Fetch = fetch
			if status, body, _ := ask(t, rd, http.MethodGet, "/blocks/"+id, nil); status != http.StatusNotFound {
				t.Errorf("%s at %s: %d: %s", id, n.Name, status, body)
			}
		}
	}
}

// silentAt is a machine with one disk that does not answer.
type silentAt struct {
	diskio.Disks
	dir string
}

func (d silentAt) Readable(dir string) bool { return dir != d.dir }

// An engine writes a file anew in place while it is being read. The reader gets one version or is cut off, never a mixture.
func TestNobodyReadsAMixtureOfTwoVersions(t *testing.T) {
	old, anew := contentOf("old", 4<<20), contentOf("new", 4<<20)
	for name, rng := range map[string]string{"whole": "", "a part": "bytes=1000-3999999"} {
		t.Run(name, func(t *testing.T) {
			a := newNode(t, "a", with(filesStore, "cache"))
			file := filepath.Join(a.Dir, "cache/x")
			write(t, file, old)
			past := time.Now().Add(-time.Hour)
			if err := os.Chtimes(file, past, past); err != nil {
				t.Fatal(err)
			}
			w := &amid{ResponseRecorder: httptest.NewRecorder(), after: 1 << 20, do: func() { write(t, file, anew) }}
			req := httptest.NewRequest(http.MethodGet, "/blocks/cache/-/x", nil)
			if rng != "" {
				req.Header.Set("Range", rng)
			}
			a.Reader().ServeHTTP(w, req)
			got, said := w.Body.Bytes(), w.Result().ContentLength
			if int64(len(got)) == said {
				t.Errorf("got all of %d bytes, which end as the new version does: %t", said, bytes.HasSuffix(anew[:4000000], got[len(got)-100:]) || bytes.HasSuffix(anew, got[len(got)-100:]))
			}
			if !bytes.Contains(old, got) {
				t.Error("got something else than a part of the old version")
			}
		})
	}
}

// A reader goes on with a file by the date of what it has. In the same second an engine wrote another version, which has the same date: the
// reader gets that one whole.
func TestADateIsNoVersion(t *testing.T) {
	a := newNode(t, "a", with(filesStore, "cache"))
	file, second := filepath.Join(a.Dir, "cache/x"), time.Now().Add(-time.Hour).Truncate(time.Second)
	put := func(content string, at time.Duration) {
		write(t, file, []byte(content))
		if err := os.Chtimes(file, second.Add(at), second.Add(at)); err != nil {
			t.Fatal(err)
		}
	}
	put("the old version", 100*time.Millisecond)
	_, _, had := a.Get(t, "cache/-/x", "")
	put("another version", 900*time.Millisecond)
	status, body, _ := ask(t, a.Reader(), http.MethodGet, "/blocks/cache/-/x", http.Header{"Range": {"bytes=4-"}, "If-Range": {had.Get("Last-Modified")}})
	if status != http.StatusOK || string(body) != "another version" {
		t.Errorf("got %d, %q, want another version whole", status, body)
	}
}

// An engine writes a file anew in place that landed among its own, as long as it was or shorter, while that is read. The reader is cut off;
// the copy is not called broken, which would alarm somebody, and have readers told that it is lost.
func TestWhatAnEngineWritesAnewIsNotBroken(t *testing.T) {
	store := with(inventory.StoreConfig{Name: "cache", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Land: inventory.LandPlace}, "cache")
	for name, size := range map[string]int{"as long": 4 << 20, "shorter": 2 << 20} {
		t.Run(name, func(t *testing.T) {
			old := contentOf("old", 4<<20)
			a, b := newNode(t, "a", store), newNode(t, "b", store)
			write(t, filepath.Join(a.Dir, "cache/x"), old)
			a.drain(t, within(t, 20*time.Second), b)
			file := filepath.Join(b.Dir, "cache/x")
			w := &amid{ResponseRecorder: httptest.NewRecorder(), after: 1 << 20, do: func() {
				write(t, file, contentOf("new", size))
			}}
			var broken []inventory.BlockID
			rd := b.Reader()
			rd.Broken, rd.Log = func(id inventory.BlockID) { broken = append(broken, id) }, slog.New(slog.DiscardHandler)
			rd.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/blocks/cache/-/x", nil))
			if got := w.Body.Bytes(); w.do != nil || len(got) == len(old) || !bytes.HasPrefix(old, got) {
				t.Errorf("got %d bytes, want a part of the old version", len(got))
			}
			if len(broken) > 0 {
				t.Errorf("%v is called broken", broken)
			}
		})
	}
}

// amid does something once that much was written to it.
type amid struct {
	*httptest.ResponseRecorder
	after int
	do    func()
}

func (w *amid) Write(p []byte) (int, error) {
	if w.after -= len(p); w.after < 0 && w.do != nil {
		w.do()
		w.do = nil
	}
	return w.ResponseRecorder.Write(p)
}

// An engine replaces a file after its version was looked up, and before it is opened. The reader is told the version whose bytes it
// gets.
func TestABlocksTagIsThatOfItsBytes(t *testing.T) {
	a := newNode(t, "a", with(filesStore, "cache"))
	file := filepath.Join(a.Dir, "cache/x")
	write(t, file, []byte("the old version"))
	swap := &swapping{Disks: diskio.OrWell(nil), in: 2, do: func() {
		write(t, file+".tmp", []byte("another"))
		if err := os.Rename(file+".tmp", file); err != nil {
			t.Error(err)
		}
	}}
	a.Disks = swap
	_, body, first := a.Get(t, "cache/-/x", "")
	if swap.in > 0 || string(body) != "another" {
		t.Fatalf("got %q, want the file that was put there as it was opened", body)
	}
	if _, _, second := a.Get(t, "cache/-/x", ""); first.Get("ETag") != second.Get("ETag") {
		t.Errorf("the same bytes are %s, and then %s", first.Get("ETag"), second.Get("ETag"))
	}
}

// swapping does something after it was asked about a disk that many times.
type swapping struct {
	diskio.Disks
	in int
	do func()
}

func (d *swapping) Readable(dir string) bool {
	if d.in--; d.in == 0 {
		d.do()
	}
	return true
}

// A file that an engine has not finished is not a block, even for a reader that knows the name that it will have.
func TestUnfinishedFilesAreNotRead(t *testing.T) {
	n := newNode(t, "a", with(filesStore, "cache"), with(sparkStore, "spark"))
	_, sub := inventory.SparkPlace("rdd_1_1", 1)
	_, half := inventory.SparkPlace("temp_local_1", 1)
	for file, want := range map[string]int{
		"cache/x": 200, "cache/d/x.tmp": 404, "cache/.tmp-x": 404, "cache/x.part": 404,
		"spark/blockmgr-1/" + sub + "/rdd_1_1": 200, "spark/blockmgr-1/" + half + "/temp_local_1": 404,
	} {
		write(t, filepath.Join(n.Dir, file), []byte("some of it"))
		id := "cache/-/" + strings.TrimPrefix(file, "cache/")
		if strings.HasPrefix(file, "spark") {
			id = "spark/blockmgr-1/" + filepath.Base(file)
		}
		if status, _, _ := n.Get(t, id, ""); status != want {
			t.Errorf("%s: got %d, want %d", id, status, want)
		}
	}
}
