package hosts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stopsLate adds a service to the disk that runs a command when it stops, and notes the order in which services stop.
func (h *host) stopsLate(name, order, atStop string) {
	h.t.Helper()
	h.write("etc/systemd/system/"+name, 0o644, "[Unit]", order, "[Service]", "Type=oneshot", "RemainAfterExit=yes", "ExecStart=/bin/true",
		`ExecStop=/bin/sh -c 'echo `+name+` >> /order; `+atStop+`'`, "[Install]", "WantedBy=multi-user.target")
	link := filepath.Join(h.disk, "etc/systemd/system/multi-user.target.wants", name)
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Symlink("/etc/systemd/system/"+name, link); err != nil {
		h.t.Fatal(err)
	}
}

// A host is switched off, and its engine clears its directory as it stops, as Spark does. The drain takes longer than
// logind waits, so most of it happens while services stop: the agent first, then the engine, then the network.
func TestEngineClearsItsDirectory(t *testing.T) {
	bootable(t)
	f := newTown(t, 2)
	f.settled()
	h := f.rack("worker")
	h.configure("drain: {max_bytes_per_second: 256KiB}")
	h.fill(16, 8<<20)
	h.stopsLate("spark-worker.service", "After=network.target", "rm -rf /cache")
	h.stopsLate("networking.service", "Before=network.target\nWants=network.target", "true")
	h.write("etc/systemd/system/lifeboat-agent.service.d/order.conf", 0o644, "[Service]", `ExecStopPost=/bin/sh -c 'echo agent >> /order'`)
	h.write("etc/systemd/logind.conf.d/50-lifeboat.conf", 0o644, "[Login]", "InhibitDelayMaxSec=5")
	h.boot()
	h.install("lifeboat.deb")
	f.until(h.is("ACTIVE"))
	f.until(h.knows(2))
	h.does("systemctl", "poweroff")
	began := time.Now()
	h.goesDown()
	if took := time.Since(began); took < 20*time.Second {
		t.Errorf("it was off after %s: the story is of a drain that outlasts logind", took)
	}
	f.until(h.is("DECOMMISSIONED"))
	h.allMoved()
	h.readBack()
	text, err := os.ReadFile(filepath.Join(h.disk, "order"))
	if got, want := strings.Join(strings.Fields(string(text)), " "), "agent spark-worker.service networking.service"; err != nil || got != want {
		t.Errorf("stopped were, in this order, %q (%v), want %q", got, err, want)
	}
	if _, err := os.Stat(filepath.Join(h.disk, "cache")); !os.IsNotExist(err) {
		t.Errorf("the story means nothing: the engine did not clear its directory (%v)", err)
	}
}
