package hosts_test

import (
	"net"
	"testing"
	"time"
)

// The stories rely on cuts: half a cut stops one direction and not the other, a pulled wire stops both, and a healed
// network is as before.
func TestCuts(t *testing.T) {
	story(t)
	w := newNetwork(t)
	a, b := w.machine("a"), w.machine("b")
	toA, toB := a.ear(t), b.ear(t)
	passes := func(when string, from *machine, to net.PacketConn, want bool) {
		t.Helper()
		if got := from.reaches(t, to); got != want {
			t.Errorf("%s: does a packet of %s pass: got %v, want %v", when, from.name, got, want)
		}
	}
	check := func(when string, ab, ba bool) {
		t.Helper()
		passes(when, a, toB, ab)
		passes(when, b, toA, ba)
	}
	check("at first", true, true)
	b.deafTo(a)
	check("b is deaf", false, true)
	b.hears(a)
	check("b hears", true, true)
	heal := cut([]*machine{a}, []*machine{b})
	check("cut", false, false)
	heal()
	check("healed", true, true)
	a.unplug()
	check("unplugged", false, false)
	a.plug()
	check("plugged", true, true)
}

// ear opens a UDP socket on the machine.
func (m *machine) ear(t *testing.T) (c net.PacketConn) {
	t.Helper()
	err := m.within(func() (err error) {
		c, err = net.ListenPacket("udp4", m.ip+":7000")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// reaches reports whether one of a few packets comes through: the first one after a wire was plugged may not.
func (m *machine) reaches(t *testing.T, to net.PacketConn) bool {
	t.Helper()
	buf := make([]byte, 1)
	for range 5 {
		_ = m.within(func() error { // it fails if the wire is unplugged
			c, err := net.Dial("udp4", to.LocalAddr().String())
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write(buf)
			return err
		})
		if err := to.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := to.ReadFrom(buf); err == nil {
			return true
		}
	}
	return false
}
