package migration

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/wire"
)

func BenchmarkFrames(b *testing.B) {
	for _, size := range []int{4 << 10, wire.ChunkBytes} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			payload := contentOf("payload", size)
			raw := wire.AppendFrame(nil, wire.FrameData, 1, payload)
			buf := make([]byte, 0, len(raw))
			stream := bytes.NewReader(raw)
			fr := wire.NewReader(stream, wire.ChunkBytes)
			b.SetBytes(int64(size))
			for b.Loop() {
				buf = wire.AppendFrame(buf[:0], wire.FrameData, 1, payload)
				stream.Reset(buf)
				if _, err := fr.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkScan(b *testing.B) {
	const count = 20_000
	b.Run("files", func(b *testing.B) {
		n := newNode(b, "a", with(filesStore, "cache"))
		for i := range count {
			plainFile(b, filepath.Join(n.Dir, "cache", fmt.Sprintf("%02x", i%64), fmt.Sprint(i)), nil)
		}
		scanAll(b, n.Stores[0], count)
	})
	b.Run("spark", func(b *testing.B) {
		n := newNode(b, "a", with(sparkStore, "d0", "d1"))
		managers := []string{filepath.Join(n.Dir, "d0/spark-1/executor-1/blockmgr-a"), filepath.Join(n.Dir, "d1/spark-2/executor-1/blockmgr-b")}
		for i := range count / 2 { // two files each
			name := fmt.Sprintf("shuffle_0_%d_0", i)
			plainFile(b, spot(managers, name+".data"), []byte("data"))
			plainFile(b, spot(managers, name+".index"), indexOf(4))
		}
		scanAll(b, n.Stores[0], count/2)
	})
}

func scanAll(b *testing.B, s *inventory.Store, want int) {
	for b.Loop() {
		got := 0
		for it, err := range s.Scan(b.Context()) {
			if err != nil || it.Skip != "" {
				b.Fatal(it, err)
			}
			got++
		}
		if got != want {
			b.Fatalf("%d blocks, want %d", got, want)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(want), "ns/block")
}

// One peer over loopback TCP and mutual TLS, durable at the peer.
func BenchmarkDrain(b *testing.B) {
	for _, c := range []struct {
		name        string
		count, size int
		land        inventory.StoreConfig
	}{
		{"2000x64KiB/vault", 2000, 64 << 10, filesStore},
		{"2000x64KiB/place", 2000, 64 << 10, placeStore},
		{"20000x4KiB/vault", 20_000, 4 << 10, filesStore},
		{"4x64MiB/vault", 4, 64 << 20, filesStore},
	} {
		b.Run(c.name, func(b *testing.B) {
			a := newNode(b, "a", with(filesStore, "cache"))
			content := contentOf("content", c.size)
			for i := range c.count {
				plainFile(b, filepath.Join(a.Dir, "cache", fmt.Sprintf("%02x", i%64), fmt.Sprint(i)), content)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			b.SetBytes(int64(c.count * c.size))
			var cpu time.Duration
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				peer := newNode(b, "b", with(c.land, "cache"))
				tr := newTrip(b, a, peer)
				tr.cfg.Dir = filepath.Join(a.Dir, fmt.Sprint("drain", i))
				tr.pipe = func() (here, there net.Conn) {
					here, err := net.Dial("tcp", l.Addr().String())
					if err != nil {
						b.Fatal(err)
					}
					if there, err = l.Accept(); err != nil {
						b.Fatal(err)
					}
					return here, there
				}
				ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
				b.StartTimer()
				before := cpuTime(b)
				sum, _ := tr.run(ctx)
				cpu += cpuTime(b) - before
				b.StopTimer()
				cancel()
				if sum.Moved.Blocks != int64(c.count) {
					b.Fatalf("%+v", sum)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(c.count)*float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
			b.ReportMetric(cpu.Seconds()/float64(b.N)/(float64(c.count*c.size)/(1<<30)), "CPU-s/GiB") // of both ends
			b.ReportMetric(float64(cpu.Microseconds())/float64(b.N)/float64(c.count), "CPU-us/block")
		})
	}
}

// BenchmarkSend measures what the sender alone costs: the other end takes everything at once, without TLS, and
// costs next to nothing.
func BenchmarkSend(b *testing.B) {
	const count = 20_000
	for _, size := range []int{4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dx%dKiB", count, size>>10), func(b *testing.B) {
			a := newNode(b, "a", with(filesStore, "cache"))
			content := contentOf("content", size)
			for i := range count {
				plainFile(b, filepath.Join(a.Dir, "cache", fmt.Sprintf("%02x", i%64), fmt.Sprint(i)), content)
			}
			send(b, a, count)
		})
	}
	b.Run("20000xMapOutput", func(b *testing.B) { // each of three files
		a := newNode(b, "a", with(sparkStore, "d0", "d1"))
		for i := range count {
			writeMapOutput(b, []string{filepath.Join(a.Dir, "d0/blockmgr-a"), filepath.Join(a.Dir, "d1/blockmgr-b")}, 0, i, 4<<10)
		}
		send(b, a, count)
	})
}

func send(b *testing.B, a *node, count int) {
	tr := newTrip(b, a)
	tr.cfg.Peers = func() []Peer { return []Peer{{Node: "b"}} }
	tr.cfg.Dial = func(context.Context, Peer) (net.Conn, error) { return newTaker(), nil }
	var drained, told time.Duration
	for i := 0; b.Loop(); i++ {
		tr.cfg.Dir = filepath.Join(a.Dir, fmt.Sprint("drain", i))
		before := cpuTime(b)
		d := NewDrain(tr.cfg)
		sum, err := d.Run(b.Context())
		if err != nil || sum.Moved.Blocks != int64(count) {
			b.Fatalf("%+v, %v", sum, err)
		}
		drained += cpuTime(b) - before
		before = cpuTime(b)
		for _, err := range manifest.Entries(tr.cfg.Dir) {
			if err != nil {
				b.Fatal(err)
			}
		}
		told += cpuTime(b) - before
	}
	b.ReportMetric(float64(drained.Nanoseconds())/1e3/float64(b.N)/float64(count), "CPU-us/block")
	b.ReportMetric(float64(told.Nanoseconds())/1e3/float64(b.N)/float64(count), "CPU-us/entry") // of the account, read back
}

// taker is a connection to a peer that takes whatever comes.
type taker struct {
	net.Conn
	answers chan []byte
	over    chan struct{} // closed by Close
	once    sync.Once
	rest    []byte // of an answer that is read
	cut     []byte // the beginning of a frame, as far as its header
	skip    int    // bytes to come of a frame that is ignored
}

func newTaker() *taker { return &taker{answers: make(chan []byte, 64), over: make(chan struct{})} }

// Write looks at no more than headers. A frame may come in pieces.
func (c *taker) Write(p []byte) (int, error) {
	var receipts []wire.Verdict
	for left := p; len(left) > 0; {
		if n := min(c.skip, len(left)); n > 0 {
			c.skip, left = c.skip-n, left[n:]
			continue
		}
		n := min(wire.HeaderBytes-len(c.cut), len(left))
		if c.cut, left = append(c.cut, left[:n]...), left[n:]; len(c.cut) < wire.HeaderBytes {
			break
		}
		switch wire.FrameType(c.cut[0]) {
		case wire.FrameHello:
			if err := c.answer(wire.AppendFrame(nil, wire.FrameGrant, 0, wire.Grant{RoomBytes: 1 << 50, VaultBytes: 1 << 50}.Append(nil))); err != nil {
				return 0, err
			}
		case wire.FrameClose:
			receipts = append(receipts, wire.Verdict{Transfer: binary.BigEndian.Uint32(c.cut[8:])})
		}
		c.skip, c.cut = int(binary.BigEndian.Uint32(c.cut[4:])), c.cut[:0]
	}
	for some := range slices.Chunk(receipts, wire.VerdictsPerFrame) {
		if err := c.answer(wire.AppendFrame(nil, wire.FrameReceipts, 0, wire.AppendVerdicts(nil, some))); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (c *taker) answer(frame []byte) error {
	select {
	case c.answers <- frame:
		return nil
	case <-c.over:
		return net.ErrClosed
	}
}

func (c *taker) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		select {
		case c.rest = <-c.answers:
		case <-c.over: // what was answered before is read first
			select {
			case c.rest = <-c.answers:
			default:
				return 0, io.EOF
			}
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *taker) Close() error                     { c.once.Do(func() { close(c.over) }); return nil }
func (c *taker) CloseWrite() error                { return c.Close() }
func (c *taker) SetWriteDeadline(time.Time) error { return nil }

func BenchmarkReadLanded(b *testing.B) {
	a, peer := newNode(b, "a", with(filesStore, "cache")), newNode(b, "b")
	content := contentOf("x", 16<<20)
	plainFile(b, filepath.Join(a.Dir, "cache/x"), content)
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	a.drain(b, ctx, peer)
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		c, err := peer.LandedFile("cache/-/x")
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, c); err != nil || n != int64(len(content)) {
			b.Fatal(n, err)
		}
		c.Close()
	}
}
