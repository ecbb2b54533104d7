package heartbeat

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lifeboat/lifeboat/api"
)

var twoPeers = []*api.Peer{
	{Node: "host-b", Address: "10.0.0.2:7412", Zone: "z1", Pool: "spot", RoomBytes: 5 << 30, VaultRoomBytes: new(int64(0)), Places: []string{"spark", "tez"}, LargestRoomBytes: 3 << 30, LargestVaultRoomBytes: 1 << 30},
	{Node: "host-c", Address: "[fd00::3]:7412", Zone: "z2"},
}

func TestPeersSurviveARestartWithoutCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, co := newNetwork(), &coordinator{peers: twoPeers, version: 3}
		cfg := config(n, addrA)
		cfg.PeersFile = filepath.Join(t.TempDir(), "peers.json")
		stopServer := n.serve(t, addrA, co)
		c := newClient(t, cfg)
		if got := c.Peers(); len(got) != 0 {
			t.Errorf("got peers %v before any was heard", got)
		}
		stop := start(t, c)
		time.Sleep(5 * time.Second)
		stop()
		stopServer()

		again := newClient(t, cfg)
		got := again.Peers()
		if len(got) != 2 || !proto.Equal(got[0], twoPeers[0]) || !proto.Equal(got[1], twoPeers[1]) {
			t.Fatalf("got peers %v after a restart, want %v", got, twoPeers)
		}
		got[0].Address = "changed"
		if again.Peers()[0].Address == "changed" {
			t.Error("the caller of Peers can change the list")
		}
		if beats := read(co, func() []*api.HeartbeatRequest { return co.beats }); beats[0].PeersVersion != 0 || beats[len(beats)-1].PeersVersion != 3 {
			t.Errorf("got peers versions %d then %d in the beats, want 0 then 3", beats[0].PeersVersion, beats[len(beats)-1].PeersVersion)
		}
	})
}

func TestPeersFollowTheCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		co := &coordinator{version: 1, peers: []*api.Peer{
			twoPeers[0], {Node: "host-a", Address: "10.0.0.9:7412"}, {Node: "", Address: "10.0.0.4:7412"}, {Node: "host-d", Address: "nowhere"},
		}}
		n.serve(t, addrA, co)
		c := newClient(t, config(n, addrA))
		start(t, c)
		time.Sleep(10 * time.Second)
		if got := c.Peers(); len(got) != 1 || got[0].Node != "host-b" {
			t.Errorf("got peers %v, want only host-b: neither the node itself nor one without name or address", got)
		}
		co.set(func() { co.version, co.peers = 2, nil })
		time.Sleep(2 * time.Second)
		if got := c.Peers(); len(got) != 0 {
			t.Errorf("got peers %v, want none as the coordinator says", got)
		}
	})
}

// A notice is sent at once. A beat that was on its way is answered after it, without any list of peers: the drain that
// begins uses the list from before.
func TestPeersOutliveAnAnswerThatSaysNothingOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{version: 3, peers: twoPeers}
		c := beating(t, co)
		time.Sleep(5 * time.Second)
		co.set(func() { co.version, co.peers = 0, nil })
		time.Sleep(5 * time.Second)
		if got := c.Peers(); len(got) != 2 {
			t.Errorf("got peers %v, want the two that were known", got)
		}
		co.set(func() { co.version, co.peers = 4, twoPeers[:1] })
		time.Sleep(2 * time.Second)
		if got := c.Peers(); len(got) != 1 {
			t.Errorf("got peers %v, want the one that the coordinator named last", got)
		}
	})
}

// An agent is replaced by an older version while it reaches no coordinator.
func TestPeersFileOfANewerAgent(t *testing.T) {
	peers, err := parsePeers([]byte(`[{"node":"host-b","address":"10.0.0.2:7412","room_bytes":1,"generation":{"of":7}}]`))
	if err != nil || len(peers) != 1 || peers[0].Node != "host-b" || peers[0].RoomBytes != 1 {
		t.Errorf("got %v, %v: want host-b, and what is new of it passed by", peers, err)
	}
}

func TestBrokenPeersFileIsNamedAndStartsEmpty(t *testing.T) {
	whole := `[{"node":"host-b","address":"10.0.0.2:7412","room_bytes":1}]`
	for name, text := range map[string]string{
		"empty": "", "half": whole[:30], "zeros": strings.Repeat("\x00", 64), "twice": whole + whole,
		"huge": strings.Repeat(" ", mostPeersFile) + whole, "not a list": `{"node":"host-b"}`,
	} {
		t.Run(name, func(t *testing.T) {
			book := &logbook{}
			cfg := config(newNetwork(), addrA)
			cfg.Log = book.log()
			cfg.PeersFile = filepath.Join(t.TempDir(), "peers.json")
			if err := os.WriteFile(cfg.PeersFile, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := newClient(t, cfg).Peers(); len(got) != 0 {
				t.Errorf("got peers %v from a broken file, want none", got)
			}
			if book.count(cfg.PeersFile) != 1 {
				t.Errorf("got log %q, want one line that names the file", book.text.String())
			}
		})
	}
}

func TestMissingPeersFileIsNoTrouble(t *testing.T) {
	book := &logbook{}
	cfg := config(newNetwork(), addrA)
	cfg.Log, cfg.PeersFile = book.log(), filepath.Join(t.TempDir(), "peers.json")
	newClient(t, cfg)
	if book.text.Len() > 0 {
		t.Errorf("got log %q on a first start, want nothing", book.text.String())
	}
}

func TestPeersFileThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, co, book := newNetwork(), &coordinator{peers: twoPeers, version: 3}, &logbook{}
		dir := filepath.Join(t.TempDir(), "later")
		cfg := config(n, addrA)
		cfg.Log, cfg.PeersFile = book.log(), filepath.Join(dir, "peers.json")
		n.serve(t, addrA, co)
		start(t, newClient(t, cfg))
		time.Sleep(10 * time.Minute)
		if got := book.count("the peers file cannot be written"); got != 1 {
			t.Errorf("got %d lines about the file, want 1", got)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * saveAgain)
		if peers, err := readPeers(cfg.PeersFile); err != nil || len(peers) != 2 {
			t.Errorf("got %v, %v in the file, want two peers", peers, err)
		}
	})
}

// Outside a bubble, because a hung disk is a system call that never returns: here, opening a pipe that nobody reads.
func TestHungDiskDoesNotSilenceTheNode(t *testing.T) {
	n, beaten := newNetwork(), make(chan struct{}, 100)
	co := &coordinator{peers: twoPeers, version: 3, interval: leastInterval}
	co.onBeat = func(context.Context) error { beaten <- struct{}{}; return nil }
	n.serve(t, addrA, co)
	cfg := config(n, addrA)
	cfg.PeersFile = filepath.Join(t.TempDir(), "peers.json")
	if err := syscall.Mkfifo(cfg.PeersFile+".new", 0o600); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, cfg)
	stop := start(t, c)
	for range 5 {
		<-beaten
	}
	if got := c.Peers(); len(got) != 2 {
		t.Errorf("got peers %v while the disk hangs, want both", got)
	}
	thaw, err := os.OpenFile(cfg.PeersFile+".new", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer thaw.Close()
	stop()
}

func FuzzParsePeers(f *testing.F) {
	f.Add([]byte(`[{"node":"host-b","address":"10.0.0.2:7412","room_bytes":1}]`))
	f.Add([]byte(`[{"node":"host-b"`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		peers, err := parsePeers(text)
		if err != nil {
			return
		}
		b := loadPeers("", "host-a", nil)
		b.hear(peers)
		file := filepath.Join(t.TempDir(), "peers.json")
		if err := writePeers(file, b.list()); err != nil {
			t.Fatal(err)
		}
		again, err := readPeers(file)
		if err != nil || len(again) != len(b.list()) {
			t.Errorf("got %v, %v; want back %v", again, err, b.list())
		}
	})
}

func TestPeersHeardBeforeTheEndAreStillWritten(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // the end and the change are both there: neither order may lose the change
		b := loadPeers(filepath.Join(t.TempDir(), "peers.json"), "host-a", nil)
		b.hear(twoPeers)
		b.save(ctx)
		if peers, err := readPeers(b.file); err != nil || len(peers) != 2 {
			t.Fatalf("got %v, %v in the file, want two peers", peers, err)
		}
	}
}

// A peer that left the list may be back in a moment, so it is missed; a new peer, or more room, is no reason.
func TestMissedPeersAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := loadPeers("", "host-a", slog.New(slog.DiscardHandler))
		b.hear(twoPeers[:1])
		b.hear(twoPeers)
		b.hear([]*api.Peer{{Node: "host-b", Address: "10.0.0.2:7412", RoomBytes: 1}, twoPeers[1]})
		if at := b.missedAt(); !at.IsZero() {
			t.Errorf("got one missed at %v, want none", at)
		}
		time.Sleep(time.Minute)
		gone := time.Now()
		b.hear(twoPeers[1:])
		time.Sleep(time.Minute)
		b.hear(twoPeers)
		if at := b.missedAt(); !at.Equal(gone) {
			t.Errorf("got one missed at %v, want %v", at, gone)
		}
	})
}
