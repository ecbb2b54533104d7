package migration

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// A peer that says that it is at work may have a large file to compare with. It has half of the time, for others have to do it otherwise.
func TestPeerAtWorkHoldsItsBlocksForHalfOfTheTime(t *testing.T) {
	for name, c := range map[string]struct{ works, least, most time.Duration }{
		"for ever": {time.Hour, time.Minute, time.Minute + 2*peerTimeout},
		"for long": {50 * time.Second, 50 * time.Second, 55 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, want := cached(t, 20, 50_000)
				other := newNode(t, "c")
				tr := newTrip(t, a, other)
				later, began := after(5*time.Second, tr.cfg.Peers), time.Now()
				tr.cfg.Peers = func() []Peer { return append([]Peer{{Node: "b"}}, later()...) }
				tr.fakes = map[string]func(net.Conn){"b": func(conn net.Conn) {
					defer conn.Close()
					fr := wire.NewReader(conn, wire.ChunkBytes)
					fr.Next()
					conn.Write(wire.AppendFrame(nil, wire.FrameGrant, 0, wire.Grant{RoomBytes: 1 << 40, VaultBytes: 1 << 40}.Append(nil)))
					go io.Copy(io.Discard, conn)
					for err := error(nil); err == nil && time.Since(began) < c.works; time.Sleep(diskio.LookAfter) {
						_, err = conn.Write(wire.AppendFrame(nil, wire.FrameReceipts, 0, wire.AppendVerdicts(nil, nil)))
					}
				}}
				_, entries := tr.run(within(t, 2*time.Minute))
				wantThere(t, want, entries, other)
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("took %v, want %v to %v", took, c.least, c.most)
				}
			})
		})
	}
}
