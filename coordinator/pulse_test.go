package coordinator

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The service manager gets the coordinator's status and its watchdog messages, which stop when the coordinator hangs.
func TestManagerIsTold(t *testing.T) {
	dir, err := os.MkdirTemp("", "notify") // t.TempDir may be too long for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", manager.LocalAddr().String())
	t.Setenv("WATCHDOG_USEC", "100000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	hears := func(word string, within time.Duration) bool {
		if err := manager.SetReadDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1024)
		for {
			n, err := manager.Read(buf)
			if err != nil {
				return false
			}
			if strings.HasPrefix(string(buf[:n]), word) {
				return true
			}
		}
	}

	cfg := Default()
	cfg.DataDir = t.TempDir()
	f := opened(t, cfg)
	if err := f.takeOver(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.do(registration("a")); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f.ledger.tellManager(ctx, f.log); err != nil {
			t.Error(err)
		}
	})
	if !hears("STATUS=leads; 1 ACTIVE", 10*time.Second) {
		t.Error("the manager was not told that this coordinator leads a node")
	}
	for range 3 {
		if !hears("WATCHDOG=1", 10*time.Second) {
			t.Error("the watchdog was not fed")
		}
	}
	f.ledger.fsm.mu.Lock()
	hears("nothing", 200*time.Millisecond) // what was said before
	for words := 0; hears("WATCHDOG=1", 500*time.Millisecond); {
		if words++; words > 1 { // one may have been on its way
			t.Error("the watchdog is fed though nobody can look at the fleet")
			break
		}
	}
	f.ledger.fsm.mu.Unlock()
	if !hears("WATCHDOG=1", 10*time.Second) {
		t.Error("the watchdog was not fed any more")
	}
	stop()
	wg.Wait()
}
