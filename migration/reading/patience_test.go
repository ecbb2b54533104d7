package reading

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/enginetest"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/pipenet"
)

// A reader that stands still in the middle is waited for, and given up in the end: its block is not kept open for ever. A reader that
// only takes its time gets everything.
func TestReaderThatStandsStillIsGivenUp(t *testing.T) {
	for name, row := range map[string]struct {
		pause time.Duration
		whole bool
	}{
		"takes its time": {readerPatience - time.Minute, true},
		"stands still":   {readerPatience + time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				const size = 1 << 20
				enginetest.Write(t, filepath.Join(dir, "x"), enginetest.Content("x", size))
				store, err := inventory.OpenStore(inventory.StoreConfig{Name: "cache", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Paths: []string{dir}})
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				rd := &Reader{Vault: newVault(t), Stores: []*inventory.Store{store}, Log: slog.New(slog.DiscardHandler)}
				l := pipenet.Listen()
				s := &http.Server{Handler: rd}
				served := make(chan struct{})
				go func() { defer close(served); s.Serve(l) }()
				conn, err := l.Dial(context.Background(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				fmt.Fprint(conn, "GET /blocks/cache/-/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
				if _, err := io.CopyN(io.Discard, conn, 1000); err != nil {
					t.Fatal(err)
				}
				time.Sleep(row.pause)
				synctest.Wait()
				rest, _ := io.Copy(io.Discard, conn)
				if whole := rest >= size-1000; whole != row.whole {
					t.Errorf("after %s it got %d bytes more of %d, want all: %t", row.pause, rest, size, row.whole)
				}
				s.Close()
				<-served
			})
		})
	}
}
