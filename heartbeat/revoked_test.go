package heartbeat

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
)

// After a restart the revoked certificates are known at once, without a coordinator. A coordinator restored from an older
// snapshot does not take a revocation back, and decisions after that count.
func TestRevokedSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stolen := &api.Revoked{Role: "node", Name: "host-b", At: timestamppb.Now()}
		n, co, book := newNetwork(), &coordinator{revokedAt: 20, revoked: []*api.Revoked{stolen}}, &logbook{}
		var heard [][]*api.Revoked
		cfg := config(n, addrA)
		cfg.RevokedFile, cfg.Log = filepath.Join(t.TempDir(), "revoked.json"), book.log()
		cfg.Revoked = func(all []*api.Revoked) { co.set(func() { heard = append(heard, all) }) }
		n.serve(t, addrA, co)
		first := newClient(t, cfg)
		if len(heard) != 0 || book.count("revoked") != 0 {
			t.Errorf("on a first start: got %v, want nothing", heard)
		}
		stop := start(t, first)
		time.Sleep(5 * time.Second)
		stop()

		heard = nil
		co.set(func() { co.beats, co.revokedAt, co.revoked = nil, 10, nil })
		again := newClient(t, cfg)
		if len(heard) != 1 || len(heard[0]) != 1 || !proto.Equal(heard[0][0], stolen) {
			t.Fatalf("after a restart: got %v, want %v", heard, stolen)
		}
		start(t, again)
		time.Sleep(5 * time.Second)
		co.set(func() {
			if has := co.beats[0].RevokedVersion; has != 20 || len(heard) != 1 {
				t.Errorf("from a coordinator that was restored: got %v, and told it of %d; want nothing, and 20", heard[1:], has)
			}
			co.revokedAt = 30
		})
		time.Sleep(5 * time.Second)
		co.set(func() {
			if len(heard) != 2 || len(heard[1]) != 0 {
				t.Errorf("after a newer decision: got %v, want an empty list", heard[1:])
			}
		})
	})
}

func TestBrokenListOfRevokedIsSaid(t *testing.T) {
	book, cfg := &logbook{}, config(newNetwork(), addrA)
	cfg.RevokedFile, cfg.Log = filepath.Join(t.TempDir(), "revoked.json"), book.log()
	if err := os.WriteFile(cfg.RevokedFile, []byte(`{"version":7,"revoked":[`), 0o600); err != nil {
		t.Fatal(err)
	}
	if version, all := newClient(t, cfg).revoked.has(); version != 0 || len(all) != 0 || book.count("cannot be read") != 1 {
		t.Errorf("got version %d of %v, and log %q; want none, and one line", version, all, book.text.String())
	}
}
