package receiver

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// BenchmarkReceive has one receiver, over loopback TCP and mutual TLS, and a sender that costs as little as it can: its
// frames were made before. The receiver's own store has the blocks' name, as between nodes of one fleet.
func BenchmarkReceive(b *testing.B) {
	const streams, each, size = 4, 10_000, 4 << 10
	content := contentOf("content", size)
	for b.Loop() {
		b.StopTimer()
		n := newNode(b, "b", with(filesStore, "cache"))
		r := New(Config{
			Stores: n.Stores, Vault: n.Vault, MaxStreams: 32, Log: slog.New(slog.DiscardHandler),
			Room:   func(string) (int64, error) { return 1 << 40, nil },
			Admit:  func(bool) Admission { return Admission{} },
			Landed: func([]vault.Held) {},
		})
		ctx, stop := context.WithCancel(b.Context())
		running := make(chan error, 1)
		go func() { running <- r.Run(ctx) }()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		sent := make([][][]byte, streams)
		for i := range sent {
			order := rand.New(rand.NewPCG(1, uint64(i))).Perm(each)
			for at, k := range order {
				// A directory of a thousand at a time, as a walk meets them.
				if at%gathered == 0 {
					sent[i] = append(sent[i], nil)
				}
				last := &sent[i][len(sent[i])-1]
				*last = append(*last, blockFrames(uint32(at+1), fmt.Sprintf("cache/-/d%03d/part-%d-%06d", at/1000, i, k), content)...)
			}
		}
		sender := certs.Dev(certs.Name{Role: certs.RoleNode, Name: "a"})
		done := make(chan error, streams)
		b.StartTimer()
		before := cpuTime(b)
		for i := range sent {
			go func() {
				c, err := l.Accept()
				if err == nil {
					tc := wire.Server(c, n.ID.Server([]string{wire.Protocol}, certs.RoleNode))
					if err = tc.HandshakeContext(ctx); err == nil {
						err = r.Serve(ctx, tc, "a")
					}
				}
				done <- err
			}()
			go func() {
				raw, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					done <- err
					return
				}
				c := wire.Client(raw, sender.Client([]string{wire.Protocol}, certs.Name{Role: certs.RoleNode, Name: "b"}))
				if err = c.HandshakeContext(ctx); err == nil {
					err = pour(c, sent[i], each)
				}
				done <- err
			}()
		}
		for range 2 * streams {
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
		cpu := cpuTime(b) - before
		b.StopTimer()
		if got := n.Vault.Count().Blocks; got != streams*each {
			b.Fatalf("%d blocks, want %d", got, streams*each)
		}
		b.ReportMetric(float64(cpu.Microseconds())/streams/each, "CPU-us/block")
		stop()
		if err := <-running; err != nil {
			b.Fatal(err)
		}
		l.Close()
		if info, err := os.Stat(n.Dir + "/vault/catalog.db"); err == nil {
			b.ReportMetric(float64(info.Size())/streams/each, "catalog-B/block")
		}
		b.StartTimer()
	}
}

// gathered is how many blocks are written at once.
const gathered = 64

// pour sends prepared frames, at most a window ahead of the receipts.
func pour(c *wire.Conn, frames [][]byte, blocks int) error {
	const window = 4096
	var receipted atomic.Int64
	more := make(chan struct{}, 1)
	failed := make(chan error, 1)
	if _, err := c.Write(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: "a"}.Append(nil))); err != nil {
		return err
	}
	go func() {
		replies := wire.NewReader(c, wire.MaxPayload[wire.FrameReceipts])
		for receipted.Load() < int64(blocks) {
			f, err := replies.Next()
			if err != nil {
				failed <- err
				return
			}
			if f.Type != wire.FrameReceipts {
				continue
			}
			vs, err := wire.ParseVerdicts(f.Payload)
			if err != nil {
				failed <- err
				return
			}
			for _, v := range vs {
				if v.Code != wire.VerdictDurable {
					failed <- fmt.Errorf("transfer %d: %s", v.Transfer, v.Reason)
					return
				}
			}
			receipted.Add(int64(len(vs)))
			select {
			case more <- struct{}{}:
			default:
			}
		}
		failed <- nil
	}()
	for i, some := range frames {
		for int64(i)*gathered >= receipted.Load()+window {
			select {
			case <-more:
			case err := <-failed:
				return err
			}
		}
		if _, err := c.Write(some); err != nil {
			return err
		}
	}
	if err := <-failed; err != nil {
		return err
	}
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, c)
	return c.Close()
}
