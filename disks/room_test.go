package disks

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestRoomIsNeverGrantedTwice(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a/x", "/mnt/a/y"}, ReserveBytes: 10 * gib}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		time.Sleep(time.Second)
		var mu sync.Mutex
		free, held := int64(50*gib), int64(0) // free on the disk; granted and not written yet
		f.say(func(t task) answer {
			mu.Lock()
			defer mu.Unlock()
			a := fine(t)
			a.Room.Free = free
			return a
		})
		var senders sync.WaitGroup
		for n := range 50 {
			senders.Go(func() {
				among := [][]string{{"/mnt/a/x", "/mnt/a/y"}, {"/mnt/a/x"}, {"/mnt/a/y"}}
				for range 20 {
					need := rand.Int64N(2 * gib)
					if _, release, ok := m.Take(need, among[n%len(among)]); ok {
						mu.Lock()
						if held += need; held > free-10*gib {
							t.Errorf("%d are granted of %d", held, free-10*gib)
						}
						mu.Unlock()
						time.Sleep(rand.N(3 * time.Second))
						mu.Lock()
						free, held = free-need, held-need // the block is there
						mu.Unlock()
						release(need)
					}
					time.Sleep(rand.N(time.Second))
				}
			})
		}
		senders.Wait()
		if d := m.Snapshot()[0]; d.ReservedBytes != 0 {
			t.Errorf("%d bytes are reserved by nobody", d.ReservedBytes)
		}
		if free > 15*gib {
			t.Errorf("%d bytes were left unused", free-10*gib)
		}
	})
}

func TestRoomGivenBackUnusedReturns(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		_, release, ok := m.Take(30*gib, []string{"/mnt/a"})
		if !ok {
			t.Fatal("nothing was reserved")
		}
		if _, _, ok := m.Take(30*gib, []string{"/mnt/a"}); ok {
			t.Error("the same room was reserved twice")
		}
		release(10 * gib)
		if d := m.Snapshot()[0]; d.UsableBytes != 40*gib {
			t.Errorf("10 GiB of it may have been written: got %d usable", d.UsableBytes)
		}
		time.Sleep(5 * time.Second)
		if d := m.Snapshot()[0]; d.UsableBytes != 50*gib || d.FreeSlots != 800 || d.Slots != 1600 {
			t.Errorf("the disk was asked: got %+v", d)
		}
		for _, bytes := range []int64{-1, 51 * gib} {
			if _, _, ok := m.Take(bytes, []string{"/mnt/a"}); ok {
				t.Errorf("%d bytes were reserved", bytes)
			}
		}
		if _, _, ok := m.Take(1, []string{"/mnt/ab"}); ok {
			t.Error("room was reserved at a path that is not watched")
		}
	})
}

func TestTakesTheBest(t *testing.T) {
	type state struct {
		health   Health
		free     int64
		rate     int64 // of flushes; 0: unknown
		reserved int64
	}
	for name, row := range map[string]struct {
		a, b state
		want string
	}{
		"the roomier of equals":              {state{Healthy, 20 * gib, 100 << 20, 0}, state{Healthy, 30 * gib, 100 << 20, 0}, "/mnt/b"},
		"a faster before a roomier":          {state{Healthy, 20 * gib, 200 << 20, 0}, state{Healthy, 30 * gib, 100 << 20, 0}, "/mnt/a"},
		"nearly as fast counts as equal":     {state{Healthy, 20 * gib, 110 << 20, 0}, state{Healthy, 30 * gib, 100 << 20, 0}, "/mnt/b"},
		"a healthy before a faster slow one": {state{Slow, 30 * gib, 900 << 20, 0}, state{Healthy, 20 * gib, 100 << 20, 0}, "/mnt/b"},
		"unknown is not fast":                {state{Healthy, 30 * gib, 0, 1 * gib}, state{Healthy, 20 * gib, 100 << 20, 0}, "/mnt/b"},
		"nor slower than the slowest":        {state{Healthy, 30 * gib, 0, 0}, state{Healthy, 20 * gib, 100 << 20, 0}, "/mnt/a"},
		"a queue makes it late":              {state{Healthy, 40 * gib, 200 << 20, 4 * gib}, state{Healthy, 20 * gib, 100 << 20, 0}, "/mnt/b"},
		"no room":                            {state{Healthy, 1 * gib, 900 << 20, 0}, state{Healthy, 20 * gib, 100 << 20, 0}, "/mnt/b"},
		"a bad one never":                    {state{ReadWriteFailure, 40 * gib, 900 << 20, 0}, state{Healthy, 1 * gib, 0, 0}, ""},
		"an unknown one never":               {state{Unknown, 40 * gib, 900 << 20, 0}, state{HighUsage, 9 * gib, 0, 0}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{Paths: []string{"/mnt/a", "/mnt/b"}, SampleBytes: -1}, func(t *testing.T, m *Monitor, _ *fakeDisks) {
				synctest.Wait()
				m.mu.Lock()
				for i, s := range []state{row.a, row.b} {
					p := m.places[i]
					p.judge.state.Health, p.room.Free = s.health, s.free
					d := m.devices[p.device]
					d.reserved = s.reserved
					if s.rate > 0 {
						d.speed.sampled(time.Now(), Flush, s.rate, time.Second)
					}
				}
				m.mu.Unlock()
				got, _, ok := m.Take(2*gib, []string{"/mnt/a", "/mnt/b", "/mnt/unheard"})
				if got != row.want || ok != (row.want != "") {
					t.Errorf("got %q, want %q", got, row.want)
				}
			})
		})
	}
}

// A disk that has not answered yet grants nothing: not the room of the disk before it, nor what was spent there.
func TestNoRoomIsKnownOfADiskThatReplacesAnother(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a/x", "/mnt/b"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		for range 5 {
			_, release, ok := m.Take(40*gib, []string{"/mnt/a/x"})
			if !ok {
				t.Fatal("no room for 40 GiB of 50")
			}
			release(40 * gib)
			time.Sleep(3 * time.Second) // until the disk is asked for its room anew
		}
		f.deaf = true
		f.freeze()
		f.remount(table1(t, twoDisks+"9 2 8:49 / /mnt/a/x rw - xfs /dev/sdd1 rw\n"))
		time.Sleep(3 * time.Second)
		if d := m.Snapshot()[0]; d.Device != "8:49" || d.UsableBytes != 0 {
			t.Errorf("on the new disk: got %d GiB usable on %s", d.UsableBytes/gib, d.Device)
		}
		if _, _, ok := m.Take(gib, []string{"/mnt/a/x"}); ok {
			t.Error("some of it was given away")
		}
		f.thaw()
		time.Sleep(3 * time.Second)
		if d := m.Snapshot()[0]; d.UsableBytes != 50*gib {
			t.Errorf("once it has answered: got %d GiB usable", d.UsableBytes/gib)
		}
	})
}

// A path that is led to another disk has the room of that disk, whatever was spent on the first.
func TestRoomOfAPathThatIsLedElsewhere(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/srv/link"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		for range 3 {
			_, release, _ := m.Take(40*gib, []string{"/srv/link"})
			release(40 * gib)
			time.Sleep(3 * time.Second)
		}
		f.say(func(t task) answer {
			a := fine(t)
			a.Dir = "/mnt/a"
			return a
		})
		for d := m.Snapshot()[0]; ; d = m.Snapshot()[0] {
			if d.UsableBytes > 50*gib {
				t.Fatalf("got %d GiB usable on %s, which has 50", d.UsableBytes/gib, d.Device)
			}
			if d.Device == "8:17" {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}
