package migration

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// A peer says that it is at work: it may have to compare a block with a large file. It gets half of the time that is left; in the other
// half another peer can take the blocks.
func TestPeerAtWorkHoldsItsBlocksForHalfOfTheTime(t *testing.T) {
	for name, c := range map[string]struct {
		works, least, most time.Duration
		alone              bool // there is no other peer until that is done
	}{
		"for ever": {works: time.Hour, least: time.Minute, most: time.Minute + 6*time.Second},
		"for long": {works: 50 * time.Second, least: 50 * time.Second, most: 55 * time.Second},
		"alone":    {works: 90 * time.Second, least: 90 * time.Second, most: 95 * time.Second, alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, want := cached(t, 20, 50_000)
				other := newNode(t, "c")
				tr := newTrip(t, a, other)
				later, began := after(5*time.Second, tr.cfg.Peers), time.Now()
				if c.alone {
					later = after(c.works, tr.cfg.Peers)
				}
				tr.cfg.Peers = func() []Peer { return append([]Peer{{Node: "b"}}, later()...) }
				var came atomic.Int64
				tr.fakes = map[string]func(net.Conn){"b": func(conn net.Conn) {
					defer conn.Close()
					fr := wire.NewReader(conn, wire.ChunkBytes)
					fr.Next()
					conn.Write(wire.AppendFrame(nil, wire.FrameGrant, 0, wire.Grant{RoomBytes: 1 << 40, VaultBytes: 1 << 40}.Append(nil)))
					go func() {
						for f, err := fr.Next(); err == nil; f, err = fr.Next() {
							if f.Type == wire.FrameClose {
								came.Add(1)
							}
						}
					}()
					for err := error(nil); err == nil && time.Since(began) < c.works; time.Sleep(diskio.LookAfter) {
						_, err = conn.Write(wire.AppendFrame(nil, wire.FrameReceipts, 0, wire.AppendVerdicts(nil, nil)))
					}
				}}
				_, entries := tr.run(within(t, 2*time.Minute))
				wantThere(t, want, entries, other)
				if n := came.Load(); c.alone && n != int64(len(want)) {
					t.Errorf("%d blocks were sent to who had nobody beside it, want %d", n, len(want))
				}
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("took %v, want %v to %v", took, c.least, c.most)
				}
			})
		})
	}
}
