package e2e_test

import "testing"

// Under FIPS 140, records are package tls's own (docs/design/records.md). Such a node sends to nodes of the usual kind, and they
// to it.
func TestNodesUnderFIPS140(t *testing.T) {
	for _, c := range []struct{ name, sender, receiver string }{
		{"sender", "on", "off"}, {"receiver", "off", "on"}, {"both", "on", "on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFleet(t)
			a, b := f.agent("host-a"), f.agent("host-b")
			a.env, b.env = []string{"GODEBUG=fips140=" + c.sender}, []string{"GODEBUG=fips140=" + c.receiver}
			a.fill(200, 40<<20)
			f.up()
			a.verb("decommission", "--self", "--timeout", "60s").exits(0)
			a.drained()
			a.allMoved(a.manifest())
			a.kill()
			f.gets(few(a.blocks, 20))
			b.onSocket().serves(t, a.blocks)
		})
	}
}
