package hosts_test

import (
	"os"
	"path/filepath"
	"testing"
)

// Four hosts start from copies of one disk: that of a host with the package, which was a node before. Each
// becomes a node of its own.
func TestGoldenImage(t *testing.T) {
	bootable(t)
	f := newTown(t, 1)
	f.settled()
	golden := f.rack("golden")
	golden.configure()
	golden.boot()
	golden.install("lifeboat.deb")
	f.until(golden.is("ACTIVE"))
	ids, incarnations := map[string]string{}, map[string]string{}
	mine := golden.seen()
	ids[mine.ID], incarnations[mine.Incarnation] = "golden", "golden"
	golden.does("systemctl", "poweroff")
	golden.goesDown()
	golden.write("etc/machine-id", 0o444) // machine-id(5): an image to be cloned has an empty file, and none of D-Bus
	if err := os.RemoveAll(filepath.Join(golden.disk, "var/lib/dbus/machine-id")); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"clone-a", "clone-b", "clone-c", "clone-d"} {
		h := f.rack(name, golden)
		h.configure()
		h.boot()
		f.until(h.is("ACTIVE"))
		mine := h.seen()
		if other := ids[mine.ID]; other != "" {
			t.Errorf("%s has the id %s, and so has %s", name, mine.ID, other)
		}
		if other := incarnations[mine.Incarnation]; other != "" {
			t.Errorf("%s has the incarnation %s, and so has %s", name, mine.Incarnation, other)
		}
		ids[mine.ID], incarnations[mine.Incarnation] = name, name
	}
	if n := count(f.events(), "NodeReplaced", ""); n != 0 {
		t.Errorf("%d nodes took another's place", n)
	}
	f.nobodyLost()
}
