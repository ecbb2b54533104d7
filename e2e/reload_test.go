package e2e_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lifeboat/lifeboat/certs"
)

// A cap that was meant for quiet days holds up a drain. It is lifted by a reload, without a restart. A file with
// faults changes nothing, and a setting that needs a restart is named.
func TestCapIsLiftedMidDrain(t *testing.T) {
	f := newFleet(t)
	a, b := f.agent("host-a", capped), f.agent("host-b")
	a.fill(40, 100<<20) // more than can be sent under the cap before the deadline
	f.up()
	a.verb("decommission", "--self", "--timeout", "80s").exits(0)
	a.underWay(1)

	a.reconfigure("drain: {max_bytes_per_second: -1}", "nonsense: 1")
	a.signal(syscall.SIGHUP)
	f.until(a.logs("the configuration has faults: the one in force stays", "nonsense"))

	a.reconfigure("drain: {max_bytes_per_second: 0}", "cloud: {provider: none, poll: 2s}")
	a.signal(syscall.SIGHUP)
	f.until(a.logs("configuration reloaded", "needs_restart=[cloud]"))
	a.drained()
	a.gone("manual", "manual")
	a.kill()
	f.gets(a.blocks)
	b.onSocket().serves(t, a.blocks)
}

// A coordinator takes up a certificate that was made anew, and keeps the one that it has if the files do not fit.
func TestCoordinatorTakesUpItsCertificate(t *testing.T) {
	f := newFleet(t)
	f.agent("host-a")
	f.up()
	shows := func() string {
		conn, err := tls.Dial("tcp", f.grpc, certs.Unverified([]string{"h2"}))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := shows()
	run(t, nil, nil, binary, "tls", "issue", "--dir", f.tls, "--coordinator", "c1", "--ip", "127.0.0.1").exits(0)
	f.coordinator.signal(syscall.SIGHUP)
	f.until(f.coordinator.logs("certificate read again"))
	after := shows()
	if after == before {
		t.Error("it shows the certificate of before")
	}
	if err := os.WriteFile(filepath.Join(f.tls, "c1.key"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.coordinator.signal(syscall.SIGHUP)
	f.until(f.coordinator.logs("what was read before stays in use", "c1.key"))
	if got := shows(); got != after {
		t.Error("it shows another certificate, for which it has no key")
	}
}

// logs returns nil once the daemon has logged all of the words.
func (d *daemon) logs(words ...string) func() error {
	return func() error {
		log := d.logged()
		for _, w := range words {
			if !strings.Contains(log, w) {
				return &missing{w}
			}
		}
		return nil
	}
}

type missing struct{ word string }

func (m *missing) Error() string { return "not logged: " + m.word }
