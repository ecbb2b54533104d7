package hosts_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/client"
)

// endless lets a node drain for longer than any story lasts.
const endless = "drain: {max_bytes_per_second: 16KiB}"

// decider asks for one decision after the other, as an impatient operator's scripts would, and keeps those that were
// acknowledged. Each moves the deadline of one leaving node by a second, and becomes an event of its own.
type decider struct {
	f    *town
	pawn *node
	stop context.CancelFunc
	wg   sync.WaitGroup

	first time.Time // the deadline before all decisions
	mu    sync.Mutex
	acked []time.Duration // by how much each acknowledged decision moved the deadline; guarded by mu
}

// decide makes a node that leaves without end, and begins to ask. Call it instead of settled.
func (f *town) decide() *decider {
	f.t.Helper()
	d := &decider{f: f, pawn: f.agent("pawn", endless)}
	d.pawn.fill(4, 16<<20)
	f.settled()
	f.verb("decommission", "pawn", "--timeout", "1h").exits(0)
	f.until(d.pawn.is("DECOMMISSIONING"))
	d.first = *d.pawn.seen().Deadline
	id, err := certs.LoadDir(f.tls)
	if err != nil {
		f.t.Fatal(err)
	}
	conn := client.New(client.Config{
		Addresses:   f.addresses(),
		Credentials: credentials.NewTLS(id.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator})),
		Dial: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = f.operator.within(func() error {
				c, err = new(net.Dialer).DialContext(ctx, network, address)
				return err
			})
			return c, err
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.wg.Go(func() {
		defer conn.Close()
		for n := time.Second; ctx.Err() == nil; n += time.Second {
			call, done := context.WithTimeout(ctx, 3*time.Second)
			_, err := api.NewOperatorClient(conn).Decommission(call, &api.DecommissionRequest{Nodes: []string{"pawn"}, Timeout: durationpb.New(time.Hour + n)})
			done()
			if err == nil {
				d.mu.Lock()
				d.acked = append(d.acked, n)
				d.mu.Unlock()
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	f.t.Cleanup(d.end)
	return d
}

func (d *decider) end() {
	d.stop()
	d.wg.Wait()
}

// goesOn waits until one more decision is acknowledged.
func (d *decider) goesOn() {
	d.f.t.Helper()
	so := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.acked)
	}
	began, before := time.Now(), so()
	d.f.until(func() error {
		if so() == before {
			return errors.New("no decision is acknowledged")
		}
		return nil
	})
	d.f.t.Logf("the next decision was acknowledged %s after the cut", time.Since(began).Round(10*time.Millisecond))
}

// check ends the asking. It fails the story unless every acknowledged decision was decided, in the order of the
// acknowledgements, and stands.
func (d *decider) check() {
	d.f.t.Helper()
	d.end()
	var decided []time.Duration
	for _, e := range d.f.events() {
		if e.Node != "pawn" || e.Type != "DecommissionChanged" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, e.Data["deadline"])
		if err != nil {
			d.f.t.Fatalf("event %+v: %v", e, err)
		}
		decided = append(decided, at.Sub(d.first).Round(time.Second))
	}
	if len(d.acked) == 0 {
		d.f.t.Error("no decision was acknowledged at all")
	}
	at := -1
	for _, n := range d.acked {
		next := slices.Index(decided[at+1:], n)
		if next < 0 {
			d.f.t.Fatalf("the decision of %s was acknowledged and is lost, or came out of order: decided are %s", n, decided)
		}
		at += 1 + next
	}
	if got := d.pawn.seen().Deadline; len(decided) > 0 {
		last := d.first.Add(decided[len(decided)-1])
		d.f.sameInstant("pawn", got, moment{last, last})
	}
	d.f.t.Logf("%d decisions acknowledged, %d decided", len(d.acked), len(decided))
}
