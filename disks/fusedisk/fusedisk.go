// Package fusedisk mounts file systems that answer as a test has them: late, or not at all.
package fusedisk

import (
	"os"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// New mounts a file system whose nodes node makes, and returns its directory. It is unmounted when the test ends. Where this
// process may not mount one, it skips the test.
func New(t *testing.T, node func(*fs.LoopbackRoot) fs.InodeEmbedder) (dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounts a file system: needs root")
	}
	dir, behind := t.TempDir(), t.TempDir()
	var st syscall.Stat_t
	if err := syscall.Stat(behind, &st); err != nil {
		t.Fatal(err)
	}
	tree := &fs.LoopbackRoot{Path: behind, Dev: st.Dev}
	tree.RootNode = node(tree)
	server, err := fs.Mount(dir, tree.RootNode, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "lifeboat", Name: "lifeboat"}})
	if err != nil {
		t.Skipf("FUSE cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
		server.Wait()
	})
	return dir
}
