package migration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// mountSeconds mounts a file system that counts whole seconds: ext4 with inodes as ext3 had them.
func mountSeconds(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root mounts file systems")
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 16<<20); err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"mkfs.ext4 -q -I 128 " + image, "mount -o loop " + image + " " + dir} {
		cmd := strings.Fields(words)
		if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%s: %v: %s", words, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// On a file system that counts whole seconds, a file that is written after a look may have a time before it. The drain sends it.
func TestWhatIsWrittenInTheSecondOfALookIsCarried(t *testing.T) {
	for _, indexes := range []bool{false, true} {
		t.Run(fmt.Sprintf("index=%v", indexes), func(t *testing.T) {
			a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
			if err := a.Stores[0].Close(); err != nil {
				t.Fatal(err)
			}
			mountSeconds(t, filepath.Join(a.Dir, "cache"))
			cfg := a.Stores[0].StoreConfig
			s, err := inventory.OpenStore(cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			a.Stores[0] = s
			want := map[string][]byte{"cache/-/d/old": contentOf("old", 1000), "cache/-/d/new": contentOf("new", 2000)}
			second := time.Now().Truncate(time.Second).Add(time.Second)
			<-time.After(time.Until(second) + inventory.ClockGrain/2)
			write(t, filepath.Join(a.Dir, "cache/d/old"), want["cache/-/d/old"])
			outlast(t) // the look begins when the files that were there are older than it
			tr := newTrip(t, a, b)
			tr.cfg.Connections = 1
			var took time.Duration
			later := sync.OnceFunc(func() {
				write(t, filepath.Join(a.Dir, "cache/d/new"), want["cache/-/d/new"])
				took = time.Since(second)
			})
			if indexes {
				tr.cfg.Index = indexed(t, a)
				later()
			}
			tr.wrap = func(c net.Conn) net.Conn { later(); return c }
			sum, entries := tr.run(within(t, time.Minute))
			if took > time.Second {
				t.Skip("the machine was too slow to do all of it in one second")
			}
			wantThere(t, want, entries, b)
			if sum.Moved.Blocks != 2 || sum.Lost.Blocks != 0 {
				t.Errorf("got %+v", sum)
			}
		})
	}
}
