package migration

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/wire"
)

const (
	largeBytes = 40 << 20
	narrow     = 4 << 20 // bytes per second: the block takes ten seconds
)

// large is a node with one large block, in a store of plain files or in Spark's, and the content of its largest file.
func large(t *testing.T, layout string) (n *node, id string, content []byte) {
	content = contentOf("large", largeBytes-7)
	if layout == inventory.LayoutFiles {
		n = newNode(t, "a", with(filesStore, "cache"))
		write(t, filepath.Join(n.Dir, "cache/large"), content)
		return n, "cache/-/large", content
	}
	n = newNode(t, "a", with(sparkStore, "s0"))
	for name, is := range map[string][]byte{"shuffle_0_1_0.data": content, "shuffle_0_1_0.index": indexOf(len(content))} {
		_, sub := inventory.SparkPlace(name, 1)
		write(t, filepath.Join(n.Dir, "s0/blockmgr-1", sub, name), is)
	}
	return n, "spark/blockmgr-1/shuffle_0_1_0.data", content
}

// cutting has a node's first connection break off after that many bytes, and the node out of reach for a second. quiet: neither end is
// told. twice: the next connection breaks off too, at once. then is called when the first one breaks off.
func cutting(n *node, at int64, quiet, twice bool, then func()) (came *atomic.Int64) {
	came = new(atomic.Int64)
	var until atomic.Pointer[time.Time]
	var again atomic.Bool
	n.plain = true
	n.mangle = func(conn net.Conn) net.Conn {
		if down := until.Load(); down != nil && time.Now().Before(*down) {
			conn.Close()
			return conn
		}
		if until.Load() != nil && twice && again.CompareAndSwap(false, true) {
			return &hooked{Conn: conn, afterRead: func(total int64) {
				if total > 60 { // after the greeting, when it asks how much is there
					conn.Close()
				}
			}}
		}
		h := &hooked{Conn: conn}
		h.onRead = func(p []byte) {
			came.Add(int64(len(p)))
			if came.Load() > at && until.Load() == nil {
				down := time.Now().Add(time.Second)
				until.Store(&down)
				if then != nil {
					then()
				}
				if !quiet {
					conn.Close()
				}
			}
		}
		if quiet && until.Load() == nil {
			return stuck(h, at)
		}
		return h
	}
	return came
}

// A link is cut for a second near the end of a large block. There is no time to send it again, but only the missing part is sent.
func TestLargeBlockGoesOnWhereItBrokeOff(t *testing.T) {
	for name, c := range map[string]struct {
		layout       string
		quiet, twice bool
		change       bool // the block changes to another version
		touch        bool // the file is replaced by one with the same content and times
		time         time.Duration
		most         float64 // most of the block that may cross the link; 1: all of it once
	}{
		"cut":      {layout: inventory.LayoutFiles, time: 14 * time.Second, most: 1.1},
		"no word":  {layout: inventory.LayoutSpark, quiet: true, time: 14*time.Second + peerTimeout, most: 1.1},
		"twice":    {layout: inventory.LayoutFiles, twice: true, time: 15 * time.Second, most: 1.1},
		"changed":  {layout: inventory.LayoutFiles, change: true, time: time.Minute, most: 3},
		"replaced": {layout: inventory.LayoutFiles, touch: true, time: time.Minute, most: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, id, content := large(t, c.layout)
				b, other := newNode(t, "b"), newNode(t, "c")
				if c.layout == inventory.LayoutSpark {
					b, other = newNode(t, "b", with(sparkStore, "s0")), newNode(t, "c", with(sparkStore, "s0"))
				}
				then := func() {
					file := filepath.Join(a.Dir, "cache/large")
					info, err := os.Stat(file)
					if c.change || c.touch {
						content = contentOf("another", len(content))
						err = errors.Join(err, os.WriteFile(file+".tmp", content, 0o644))
						if c.touch {
							err = errors.Join(err, os.Chtimes(file+".tmp", info.ModTime(), info.ModTime()))
						}
						err = errors.Join(err, os.Rename(file+".tmp", file))
					}
					if c.layout == inventory.LayoutFiles && err != nil {
						t.Error(err)
					}
				}
				var took [2]*atomic.Int64
				for i, n := range []*node{b, other} {
					took[i] = cutting(n, largeBytes*9/10, c.quiet, c.twice, then)
				}
				tr := newTrip(t, a, b, other)
				tr.cfg.Connections, tr.cfg.MaxBytesPerSecond = 1, narrow
				_, entries := tr.run(within(t, c.time))
				moved, holder := outcome(t, entries, manifest.Moved), b
				if len(moved) != 1 {
					t.Fatalf("got %v", entries)
				}
				for _, e := range moved {
					holder = tr.node(e.Peer)
				}
				if got := holder.Content(t, id); !bytes.Equal(got, content) {
					t.Error("it reads otherwise")
				}
				if all := took[0].Load() + took[1].Load(); float64(all) > largeBytes*c.most {
					t.Errorf("%d bytes crossed the link for a block of %d", all, largeBytes)
				}
			})
		})
	}
}

// A link is cut in a large block, and the peer does not come back. There is time to send all of it to another peer, if that begins within
// five seconds.
func TestLargeBlockDoesNotWaitForItsPeerUntilItIsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, id, content := large(t, inventory.LayoutFiles)
		b, other := newNode(t, "b"), newNode(t, "c")
		var away atomic.Pointer[node]
		for _, n := range []*node{b, other} {
			n.plain = true
			came := 0
			n.mangle = func(conn net.Conn) net.Conn {
				if away.Load() == n {
					conn.Close()
					return conn
				}
				return &hooked{Conn: conn, onRead: func(p []byte) {
					if came += len(p); came > 34<<20 && away.CompareAndSwap(nil, n) {
						conn.Close()
					}
				}}
			}
		}
		tr := newTrip(t, a, b, other)
		tr.cfg.Connections, tr.cfg.MaxBytesPerSecond = 1, narrow
		ctx, until := within(t, 22800*time.Millisecond), time.Now().Add(22800*time.Millisecond)
		tr.cfg.Until = func() time.Time { return until }
		_, entries := tr.run(ctx)
		moved := outcome(t, entries, manifest.Moved)
		if len(moved) != 1 || away.Load() == nil {
			t.Fatalf("got %v", entries)
		}
		for _, e := range moved {
			if got := tr.node(e.Peer).Content(t, id); !bytes.Equal(got, content) {
				t.Error("it reads otherwise")
			}
		}
	})
}

// A peer stands still for long near the end of a large block. There is no time to send the block again to anybody, but when the peer goes
// on it is sent what is missing.
func TestLargeBlockWaitsForItsPeerWhereNobodyElseHasTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, id, content := large(t, inventory.LayoutFiles)
		b := newNode(t, "b")
		b.plain = true
		var came atomic.Int64
		var still atomic.Pointer[time.Time] // until then
		b.mangle = func(conn net.Conn) net.Conn {
			waits := func() {
				if until := still.Load(); until != nil {
					time.Sleep(time.Until(*until))
				}
			}
			return &hooked{Conn: conn, onRead: func(p []byte) {
				if came.Add(int64(len(p))) > largeBytes*9/10 {
					still.CompareAndSwap(nil, new(time.Now().Add(18*time.Second)))
				}
				waits()
			}}
		}
		tr := newTrip(t, a, b)
		tr.cfg.Connections, tr.cfg.MaxBytesPerSecond = 1, narrow
		ctx, until := within(t, 34*time.Second), time.Now().Add(34*time.Second)
		tr.cfg.Until = func() time.Time { return until }
		_, entries := tr.run(ctx)
		if moved := outcome(t, entries, manifest.Moved); len(moved) != 1 {
			t.Fatalf("got %v", entries)
		}
		if got := b.Content(t, id); !bytes.Equal(got, content) {
			t.Error("it reads otherwise")
		}
		if all := came.Load(); all > largeBytes*11/10 {
			t.Errorf("%d bytes crossed the link for a block of %d", all, largeBytes)
		}
	})
}

// A peer that breaks off each time, or claims to have bytes that were never sent, does not keep the block from other peers.
func TestWhoBreaksOffAgainAndAgainDoesNotKeepTheBlock(t *testing.T) {
	for _, has := range []int64{wire.ResumeLeast, 1 << 50} {
		synctest.Test(t, func(t *testing.T) {
			a, id, content := large(t, inventory.LayoutFiles)
			b, c := newNode(t, "b"), newNode(t, "c")
			c.plain = true
			tr := newTrip(t, a, b, c)
			tr.cfg.Connections = 1
			all, began := tr.cfg.Peers(), time.Now()
			tr.cfg.Peers = func() []Peer {
				if time.Since(began) < 2*time.Second {
					return all[:1]
				}
				return all
			}
			var asked atomic.Int64
			tr.fakes = map[string]func(net.Conn){"b": func(conn net.Conn) {
				defer conn.Close()
				in := wire.NewReader(conn, wire.ChunkBytes)
				for came := 0; came < wire.ResumeLeast+4*wire.ChunkBytes; {
					f, err := in.Next()
					if err != nil {
						return
					}
					came += len(f.Payload)
					switch f.Type {
					case wire.FrameHello:
						conn.Write(wire.AppendFrame(nil, wire.FrameGrant, 0, wire.Grant{RoomBytes: 1 << 40, VaultBytes: 1 << 40}.Append(nil)))
					case wire.FrameAgain:
						asked.Add(1)
						conn.Write(wire.AppendFrame(nil, wire.FrameHave, 0, wire.Have{Transfer: f.Transfer, Bytes: has}.Append(nil)))
						in.Next()
						return
					}
				}
			}}
			_, entries := tr.run(within(t, time.Minute))
			if e := outcome(t, entries, manifest.Moved)[id]; e.Peer != "c" {
				t.Fatalf("got %v after it was asked %d times", entries, asked.Load())
			}
			if got := c.Content(t, id); !bytes.Equal(got, content) || asked.Load() == 0 {
				t.Errorf("it reads otherwise, or nobody was asked (%d)", asked.Load())
			}
		})
	}
}
