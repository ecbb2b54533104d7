package coordinator

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lifeboat/lifeboat/certs"
)

// A coordinator that logged that it is no member logs that it has become one.
func TestMemberSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		id := certs.Dev(certs.Name{Role: certs.RoleCoordinator, Name: "c2"})
		l, err := openLedger(ledgerConfig{dir: t.TempDir(), own: "c2", peers: peersNamed(3), election: time.Second, log: slog.New(slog.DiscardHandler), streams: newStreams(id, "c2:1", nowhere)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f := &fleet{cfg: Config{Name: "c2"}, ledger: l, log: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.ledger.noteTurns(ctx, f.log) }()
		time.Sleep(time.Minute)
		servers := []raft.Server{{ID: "c1", Address: "10.0.0.1:7411"}, {ID: "c2", Address: "10.0.0.2:7411"}, {ID: "c3", Address: "10.0.0.3:7411"}}
		if err := l.raft.BootstrapCluster(raft.Configuration{Servers: servers}).Error(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		for _, said := range []string{"is no member of a fleet", "is a member of its fleet"} {
			if n := strings.Count(log.String(), said); n != 1 {
				t.Errorf("the log says %d times that it %s:\n%s", n, said, &log)
			}
		}
	})
}
