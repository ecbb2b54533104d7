package interop_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/fallback/storagetest"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// versity is a running versitygw, an S3 server over a directory.
type versity struct {
	url string
	dir string // the directory of its only bucket
}

// serveS3 builds versitygw and runs it until the test ends. https://github.com/versity/versitygw
func serveS3(t *testing.T) versity {
	t.Helper()
	if os.Getenv("LIFEBOAT_INTEROP") != "1" {
		t.Skip("builds an S3 server from the module proxy and takes real time: set LIFEBOAT_INTEROP=1")
	}
	server := filepath.Join(t.TempDir(), "versitygw")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", server, "github.com/versity/versitygw/cmd/versitygw")
	build.Dir = filepath.Join("..", "tools", "versitygw")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	root, address := t.TempDir(), freeAddress(t)
	v := versity{url: "http://" + address, dir: filepath.Join(root, "spill")}
	if err := os.Mkdir(v.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(context.Background()) // the test's own ends before the cleanup
	cmd := exec.CommandContext(ctx, server, "--access", "who", "--secret", "secret", "--port", address, "posix", root)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(); _ = cmd.Wait() }) // it was killed
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return v
		}
		if time.Since(began) > patience {
			t.Fatalf("the server does not listen: %v", err)
		}
	}
}

// bucket is a client of the server's bucket, with keys from a file.
func (v versity) bucket(t *testing.T) *fallback.Bucket {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("[default]\naws_access_key_id = who\naws_secret_access_key = secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := fallback.OpenBucket(t.Context(), fallback.S3{Bucket: "spill", Prefix: "fleet/", Endpoint: v.url, PathStyle: true, CredentialsFile: keys}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestS3 runs the table of tests that our own fake of S3 passes too, and then a drain into the server. The drain is
// stopped amid a large upload, and another one, without its ledger, finishes the work. All blocks are read back, except
// one in which a bit was flipped.
func TestS3(t *testing.T) {
	v := serveS3(t)
	b := v.bucket(t)
	t.Run("storage", func(t *testing.T) { storagetest.Run(t, b) })
	t.Run("drain", func(t *testing.T) { drainInto(t, v, b) })
}

func drainInto(t *testing.T, v versity, b *fallback.Bucket) {
	dir := t.TempDir()
	store, err := inventory.OpenStore(inventory.StoreConfig{Name: "cache", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Land: inventory.LandVault, Paths: []string{filepath.Join(dir, "cache")}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	vault, err := vault.Open(filepath.Join(dir, "vault"))
	if err != nil {
		t.Fatal(err)
	}
	defer vault.Close()
	sizes := map[string]int{"empty": 0, "small": 1000, "d/ü ber+%20#?.x": 300_000, "large": 40 << 20}
	for name, size := range sizes {
		p := filepath.Join(dir, "cache", name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, storagetest.ContentOf(name, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	last := &lastresort.Storage{Name: "spill", Layout: lastresort.LayoutBlocks, Streams: 4, Objects: b}
	drain := func(ctx context.Context, incident string, cap int64) manifest.Summary {
		d := migration.NewDrain(migration.DrainConfig{
			Node: "a", Incident: incident, Dir: filepath.Join(dir, incident), Stores: []*inventory.Store{store}, Vault: vault,
			Peers: func() []migration.Peer { return nil }, Connections: 1, MaxBytesPerSecond: cap, Fallback: last, Log: log,
		})
		sum, err := d.Run(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}

	ctx, withdrawn := context.WithTimeout(t.Context(), 12*time.Second)
	sum := drain(ctx, "first", 2<<20) // the large block would take 20 s, the others take none
	withdrawn()
	if sum.Moved.Blocks != 3 || sum.Lost.Blocks != 1 {
		t.Errorf("cut short: got %+v, want all but the large one moved", sum)
	}
	if parts, err := filepath.Glob(filepath.Join(v.dir, ".sgwtmp/multipart/*/*")); err != nil || len(parts) != 0 {
		t.Errorf("the upload that was cut short left %v (%v), want it aborted", parts, err)
	}
	small := filepath.Join(v.dir, "fleet/lifeboat-blocks/a/cache/-/small")
	before, err := os.Stat(small)
	if err != nil {
		t.Fatal(err)
	}
	ctx, withdrawn = context.WithTimeout(t.Context(), time.Minute)
	defer withdrawn()
	if sum = drain(ctx, "second", 0); sum.Moved.Blocks != 4 || sum.Lost.Blocks != 0 {
		t.Errorf("again: got %+v, want four moved", sum)
	}
	if after, err := os.Stat(small); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("what was there was sent again (%v)", err)
	}

	read := func(id, ranges string) (int, []byte) {
		w := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodGet, (&url.URL{Path: "/blocks/" + id}).String(), nil)
		if ranges != "" {
			req.Header.Set("Range", ranges)
		}
		(&reading.Reader{Vault: vault, Fallback: last, Log: log}).ServeHTTP(w, req)
		return w.Code, w.Body.Bytes()
	}
	for name, size := range sizes {
		if code, got := read("cache/-/"+name, ""); code != http.StatusOK || !bytes.Equal(got, storagetest.ContentOf(name, size)) {
			t.Errorf("%s reads back with status %d and %d bytes, want %d", name, code, len(got), size)
		}
	}
	if code, got := read("cache/-/large", "bytes=20000000-20000999"); code != http.StatusPartialContent || !bytes.Equal(got, storagetest.ContentOf("large", 40<<20)[20000000:20001000]) {
		t.Errorf("a range reads back with status %d and %d bytes", code, len(got))
	}
	content := storagetest.ContentOf("small", 1000)
	content[0] ^= 1
	if err := os.WriteFile(small, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, got := read("cache/-/small", ""); code != http.StatusGone || bytes.Contains(got, content[:100]) {
		t.Errorf("a flipped bit: got status %d and %d bytes, want 410", code, len(got))
	}
}
