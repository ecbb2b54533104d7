package agent

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A start on a hanging disk logs that within seconds, once, and logs when it goes on. A start that takes long for another
// reason logs nothing.
func TestStartOnADiskThatHangs(t *testing.T) {
	for name, takes := range map[string]time.Duration{"a second": time.Second, "an hour": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, told := time.Now(), []time.Duration{}
				var said bytes.Buffer
				over := watchStart(t.Context(), slog.New(slog.NewTextHandler(&said, nil)), func() error { time.Sleep(takes); return nil }, func(ctx context.Context) {
					told = append(told, time.Since(began))
					<-ctx.Done()
					told = append(told, time.Since(began))
				})
				time.Sleep(2 * time.Hour)
				over()
				synctest.Wait()
				switch {
				case takes == time.Second && len(told)+said.Len() > 0:
					t.Errorf("got %v, %q", told, &said)
				case takes == time.Hour && (len(told) != 2 || told[0] > 5*time.Second || told[1] != takes || strings.Count(said.String(), "\n") != 1):
					t.Errorf("got %v, %q, want it to be told within 5 s and until an hour is over", told, &said)
				}
			})
		})
	}
}

// A start makes a missing directory of a store, and then fails. The next start that succeeds still logs that the directory
// was missing.
func TestMissingDirectoryIsToldByTheNextStart(t *testing.T) {
	c := settings(t)
	dir := filepath.Dir(c.DataDir)
	file, second := filepath.Join(dir, "a-file"), filepath.Join(dir, "second")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Stores = append(c.Stores, Store{Name: "two", Kind: "cache", Layout: "files", Land: "vault", Paths: []string{second, file}})
	if _, err := New(t.Context(), c, deps(c)); err == nil {
		t.Fatal("a store in a file is no fault")
	}
	c.Stores[1].Paths[1] = filepath.Join(dir, "third")
	var said bytes.Buffer
	d := deps(c)
	d.Log = slog.New(slog.NewTextHandler(&said, nil))
	a, err := New(t.Context(), c, d)
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, path := range []string{c.Stores[0].Paths[0], second} {
		if !strings.Contains(said.String(), "dir="+path+"\n") {
			t.Errorf("nothing is said of %s: %s", path, &said)
		}
	}
}
