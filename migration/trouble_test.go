package migration

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/nodetest"
	"github.com/lifeboat/lifeboat/migration/receiver"
)

// The log says once what is the matter with a peer, and says what it is.
func TestLogSaysOnceWhatAPeerLacks(t *testing.T) {
	landed := func(n *node) (bytes int64) {
		for _, h := range n.LandedBlocks() {
			bytes += h.Bytes
		}
		return bytes
	}
	const (
		full = `peer has no room for any block that is left" peer=b`
		goes = `peer in trouble" peer=b err="this node is under notice itself"`
		room = 4_000_000
	)
	for what, row := range map[string]struct {
		is   func(b *node)
		want string // "": nothing
	}{
		"its room runs out": {func(b *node) {
			b.Room = func(string) int64 { return room - landed(b) }
		}, full},
		"it finds room for a block now and then": {func(b *node) {
			began := time.Now()
			b.Room = func(string) int64 { return room + int64(time.Since(began)/time.Second)*100_000 - landed(b) }
		}, full},
		"it is to leave amid the stream": {func(b *node) {
			var asked atomic.Int64
			b.tune = func(cfg *receiver.Config) {
				cfg.Admit = func(bool) (is receiver.Admission) {
					if asked.Add(1) > 50 { // for each block
						is.Refused = "this node is under notice itself"
					}
					return is
				}
			}
		}, goes},
		"it has two streams, and no third": {func(b *node) { b.tune = func(cfg *receiver.Config) { cfg.MaxStreams = 4 } }, ""},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b", with(filesStore, "cache"))
				for i := range 100 {
					write(t, filepath.Join(a.Dir, "cache", fmt.Sprintf("f-%d", i)), contentOf("f", 20_000+i*2_000))
				}
				row.is(b)
				var said nodetest.Notes
				tr := newTrip(t, a, b)
				tr.cfg.Connections, tr.cfg.Log = 3, slog.New(slog.NewTextHandler(&said, nil))
				tr.run(within(t, 10*time.Second))
				if n := said.Count(`msg="peer `); n > 1 || said.Count(`msg="`+row.want) != n || (n == 0) != (row.want == "") {
					t.Errorf("it speaks of the peer %d times, want once: %s", n, row.want)
				}
			})
		})
	}
}
