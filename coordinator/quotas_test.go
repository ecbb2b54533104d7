package coordinator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// The holder of a node's key must not push other nodes' events out of the log: it may register as another machine a hundred times, and then
// once each five seconds. Calls that change nothing do not count, its heartbeats are answered, and it is let in again later.
func TestOneNodeMayNotWriteTheLogFull(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("host-a"), v.agent("host-b")
		b.register()
		for range 3 * writesAtOnce {
			b.register()
		}
		machines, refused := 0, 0
		again := func() error {
			machines++
			incarnation := fmt.Sprint("machine ", machines)
			_, err := a.Register(v.Context(), &api.RegisterRequest{Node: a.name, Incarnation: incarnation, PeerAddress: "host-a:7412", Status: a.status})
			if err == nil {
				a.incarnation = incarnation
			}
			return err
		}
		var said error
		for range 3 * writesAtOnce {
			time.Sleep(time.Millisecond)
			if err := again(); err != nil {
				refused, said = refused+1, err
			}
		}
		if refused != 2*writesAtOnce {
			t.Errorf("%d of %d registrations were refused, want %d", refused, 3*writesAtOnce, 2*writesAtOnce)
		}
		v.refused(said, codes.ResourceExhausted, "lifeboat revoke node host-a")
		a.notice("i-1", time.Hour)
		a.beat()
		v.is("host-a", registry.Active) // its notice is written down later
		b.notice("i-2", time.Hour)
		b.beat()
		v.is("host-b", registry.Decommissioning)
		a.live(10)
		v.is("host-a", registry.Decommissioning)
		time.Sleep(writesAtOnce * writesEvery)
		if err := again(); err != nil {
			t.Errorf("later: %v", err)
		}
	})
}

// The quota of a caller that wrote nothing for long is forgotten.
func TestQuotasAreBounded(t *testing.T) {
	var q quotas
	for i := range 10 * quotasSwept {
		if now := t0.Add(time.Duration(i) * time.Second); !q.take(fmt.Sprint(i), writesEvery, now) {
			t.Fatalf("the first write of node %d is refused", i)
		}
		if len(q.until) > quotasSwept+1 {
			t.Fatalf("%d nodes are remembered, of which all but a few wrote nothing lately", len(q.until))
		}
	}
}

// The holder of an app's certificate can fill neither the log nor the list of apps; its heartbeats are heard, and apps of other certificates
// can begin.
func TestOneCertificateOfAppsMayNotWriteTheLogFull(t *testing.T) {
	inTown(t, func(v *town) {
		etl, other := api.NewOperatorClient(v.conn(certs.RoleApp, "etl")), api.NewOperatorClient(v.conn(certs.RoleApp, "other"))
		begins := func(by api.OperatorClient, app string) error {
			_, err := by.BeatApp(v.Context(), &api.BeatAppRequest{App: app})
			return err
		}
		began, tries := 0, 600
		var said error
		for i := range tries {
			if err := begins(etl, fmt.Sprint("app-", i)); err == nil {
				began++
			} else {
				said = err
			}
		}
		if most := int((writesAtOnce - 1) * writesEvery / appWritesEvery); began < most || began > most+10 {
			t.Errorf("%d of %d apps began, want %d or so", began, tries, most)
		}
		v.refused(said, codes.ResourceExhausted, "lifeboat revoke app etl")
		if err := errors.Join(begins(etl, "app-0"), begins(other, "theirs")); err != nil {
			t.Errorf("what runs, and another's: %v", err)
		}
		time.Sleep(2 * appWritesEvery)
		if err := begins(etl, "later"); err != nil {
			t.Errorf("later: %v", err)
		}
	})
}

// A node has one manifest under way: each more could take gigabytes of disk.
func TestANewerGoodbyeEndsTheOneBefore(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("host-a")
		a.register()
		a.notice("i-1", time.Hour)
		a.announce()
		said := &api.ManifestSummary{Node: a.name, Incarnation: a.incarnation, Incident: "i-1", Kind: "terminate", Source: "ec2"}
		old, err := a.Goodbye(v.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []*api.GoodbyeRequest{{Summary: said}, {Entries: []*api.ManifestEntry{{Id: "spark/-/x", Bytes: 1, Outcome: "moved"}}}} {
			if err := old.Send(r); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if n := len(v.manifestFiles()); n != 1 {
			t.Fatalf("got %d files, want the one that is coming", n)
		}
		a.goodbye("i-1")
		if files := v.manifestFiles(); len(files) != 1 || strings.HasPrefix(files[0], partly) {
			t.Errorf("got %v, want the newer one alone", files)
		}
		_ = old.Send(&api.GoodbyeRequest{Entries: []*api.ManifestEntry{{Id: "spark/-/y", Bytes: 1, Outcome: "moved"}}})
		if _, err := old.CloseAndRecv(); status.Code(err) != codes.Aborted {
			t.Errorf("the older one: got %v, want Aborted", err)
		}
	})
}

// The bound on one manifest is also the bound on all that is kept of a node's.
func TestManifestIsBounded(t *testing.T) {
	w := &manifestWriter{bytes: registry.MaxManifest, counts: map[string]int64{}}
	if err := w.add(&api.ManifestEntry{Id: "spark/-/x", Outcome: "moved"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an entry too many: got %v, want InvalidArgument", err)
	}
}
