package migration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Large blocks cross links that break off again and again, with or without a word, and that flip bits, while their files are written anew.
// In the end each block is at a peer as its file is then, and no room stays set aside there. The two seeds are those in which a lane once
// counted its wait for an answer into the pace of its link; LIFEBOAT_WANDERS=N runs N seeds instead.
func TestLargeBlocksOverLinksThatBreak(t *testing.T) {
	seeds := []int{14, 15}
	if stories, err := strconv.Atoi(os.Getenv("LIFEBOAT_WANDERS")); err == nil {
		seeds = nil
		for seed := range stories {
			seeds = append(seeds, seed)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			a := newNode(t, "a", with(sparkStore, "s0"), with(filesStore, "cache"))
			b, f := onDisks(t, "b", []inventory.StoreConfig{with(sparkStore, "s0")}, "d0")
			c, g := onDisks(t, "c", nil, "d0", "d1")
			synctest.Test(t, func(t *testing.T) {
				rnd, mu := rand.New(rand.NewPCG(uint64(seed), 7)), sync.Mutex{}
				roll := func(n int) int {
					mu.Lock()
					defer mu.Unlock()
					return rnd.IntN(n)
				}
				f.News, g.News = make(chan struct{}), make(chan struct{})
				want := map[string][]byte{}
				put := func(i int) {
					name := fmt.Sprintf("large-%d", i)
					content := contentOf(fmt.Sprint(name, roll(1e9)), wire.ResumeLeast+roll(8<<20))
					path := filepath.Join(a.Dir, "cache", name)
					write(t, path+".tmp", content)
					if err := os.Rename(path+".tmp", path); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					want["cache/-/"+name] = content
				}
				for i := range 3 {
					put(i)
				}
				data := contentOf("data", wire.ResumeLeast+roll(8<<20))
				for name, is := range map[string][]byte{"shuffle_0_1_0.data": data, "shuffle_0_1_0.index": indexOf(len(data))} {
					_, sub := inventory.SparkPlace(name, 1)
					write(t, filepath.Join(a.Dir, "s0/blockmgr-1", sub, name), is)
				}
				want["spark/blockmgr-1/shuffle_0_1_0.data"] = data
				breaks, rewrites := 4+roll(8), roll(3)
				for _, n := range []*node{b, c} {
					n.plain = true
					n.mangle = func(conn net.Conn) net.Conn {
						mu.Lock()
						breaks--
						over := breaks < 0
						mu.Unlock()
						if over {
							return conn
						}
						at := int64(roll(50 << 20))
						switch roll(4) {
						case 0:
							return stuck(conn, at)
						case 1:
							h := &hooked{Conn: conn}
							h.onRead = func(p []byte) {
								if h.total-int64(len(p)) <= at && at < h.total {
									p[0] ^= 4
								}
							}
							return h
						}
						return &hooked{Conn: conn, afterRead: func(total int64) {
							if total > at {
								conn.Close()
							}
						}}
					}
				}
				tr := newTrip(t, a, b, c)
				tr.cfg.Connections, tr.cfg.MaxBytesPerSecond = 1+roll(2), 16<<20
				for range rewrites {
					i := roll(3)
					time.AfterFunc(time.Duration(roll(20_000))*time.Millisecond, func() {
						if !tr.drain.plan.Sealed() { // else no look follows
							put(i)
						}
					})
				}
				sum, entries := tr.run(within(t, 5*time.Minute))
				moved := outcome(t, entries, manifest.Moved)
				if sum.Lost.Blocks > 0 || sum.Moved.Blocks != 4 {
					t.Errorf("got %+v: %v", sum, entries)
				}
				mu.Lock()
				defer mu.Unlock()
				for id, content := range want {
					e, ok := moved[id]
					if id == "spark/blockmgr-1/shuffle_0_1_0.data" {
						e, ok = moved["spark/blockmgr-1/shuffle_0_1_0"]
					}
					if n := tr.node(e.Peer); !ok || !bytes.Equal(n.Content(t, id), content) {
						t.Errorf("%s reads otherwise at %q", id, e.Peer)
					}
				}
				synctest.Wait()
				f.WantNothingReserved(t)
				g.WantNothingReserved(t)
			})
		})
	}
}
