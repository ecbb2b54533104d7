package migration

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// A peer takes everything and answers late. If its machine is gone, which no packet tells, its blocks go to other peers while there is
// time. If the peer says that it is there, its disk has as long as a disk may take, and nothing is sent twice.
func TestPeerThatIsGoneIsNotWaitedForAsOneWhoseDiskIsSlow(t *testing.T) {
	for name, there := range map[string]bool{"gone": false, "there": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, want := cached(t, 20, 50_000)
				other := newNode(t, "c")
				tr := newTrip(t, a, other)
				later, began := after(2*time.Second, tr.cfg.Peers), time.Now()
				tr.cfg.Peers = func() []Peer { return append([]Peer{{Node: "b"}}, later()...) }
				tr.fakes = map[string]func(net.Conn){"b": func(conn net.Conn) {
					defer conn.Close()
					fr := granted(conn)
					var mu sync.Mutex
					var owed []wire.Verdict
					go func() {
						for f, err := fr.Next(); err == nil; f, err = fr.Next() {
							mu.Lock()
							if f.Type == wire.FrameClose {
								owed = append(owed, wire.Verdict{Transfer: f.Transfer})
							}
							mu.Unlock()
						}
					}()
					for err := error(nil); err == nil && time.Since(began) < 20*time.Second; {
						time.Sleep(wire.AliveEvery)
						said := wire.AppendFrame(nil, wire.FrameAlive, 0, nil)
						mu.Lock()
						if time.Since(began) > peerTimeout-2*wire.AliveEvery {
							said, owed = wire.AppendFrame(said, wire.FrameReceipts, 0, wire.AppendVerdicts(nil, owed)), nil
						}
						mu.Unlock()
						if there {
							_, err = conn.Write(said)
						}
					}
				}}
				_, entries := tr.run(within(t, peerTimeout))
				for _, e := range outcome(t, entries, manifest.Moved) {
					if there != (e.Peer == "b") {
						t.Errorf("%s was moved to %s", e.ID, e.Peer)
					}
				}
				if !there {
					wantThere(t, want, entries, other)
				} else if n := len(outcome(t, entries, manifest.Moved)); n != len(want) {
					t.Errorf("%d of %d blocks were moved", n, len(want))
				}
			})
		})
	}
}
