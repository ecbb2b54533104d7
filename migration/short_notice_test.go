package migration

import (
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// With seconds left, each lane begins a block before it is known what the link carries. Lanes that then give theirs up
// leave the link to the others at once: a chunk that each has read and not sent would be part of what another needs.
func TestBlocksThatAreGivenUpLeaveAShortTimeToOthers(t *testing.T) {
	for _, row := range []struct{ kib, seconds, want int }{
		{4882, 4, 1}, // half of what the link carries
		{3 << 10, 5, 3},
	} {
		t.Run(fmt.Sprintf("%d KiB in %d s", row.kib, row.seconds), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newNode(t, "a", with(filesStore, "cache"))
				for i := range 8 {
					write(t, filepath.Join(a.Dir, "cache", fmt.Sprint(i)), contentOf(fmt.Sprint(i), row.kib<<10))
				}
				tr := newTrip(t, a, newNode(t, "b"), newNode(t, "c"), newNode(t, "d"), newNode(t, "e"))
				link := rate.NewLimiter(20e6/8, 16<<10)
				tr.wrap = func(conn net.Conn) net.Conn { return narrowLink{conn, link} }
				sum, _ := tr.run(within(t, time.Duration(row.seconds)*time.Second))
				if sum.Moved.Blocks < int64(row.want) {
					t.Errorf("got %+v, want %d moved", sum, row.want)
				}
			})
		})
	}
}
