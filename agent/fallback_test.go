package agent

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/fallback"
)

// withFallback is an agent that has no more than that.
func withFallback(t *testing.T, s fallback.Settings) (*Agent, *bytes.Buffer) {
	t.Helper()
	var said bytes.Buffer
	a := &Agent{cfg: Config{Fallback: s}, log: slog.New(slog.NewTextHandler(&said, nil))}
	if err := a.openFallback(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a, &said
}

func TestFallbackIsCheckedAheadOfNeed(t *testing.T) {
	s := fallback.Default()
	s.Dir = filepath.Join(t.TempDir(), "share")
	a, said := withFallback(t, s)
	for range 2 {
		a.checkFallback(t.Context())
	}
	if n := strings.Count(said.String(), "is it mounted?"); n != 1 || *a.fallbackOK.Load() {
		t.Errorf("said %d times that the directory is missing, want once: %s", n, said)
	}
	if err := os.Mkdir(s.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	a.checkFallback(t.Context())
	if !*a.fallbackOK.Load() || !strings.Contains(said.String(), "well again") {
		t.Errorf("after it was mounted: %s", said)
	}
}

func TestAgentRemovesWhatIsOldInItsDirectory(t *testing.T) {
	s := fallback.Default()
	s.Dir, s.Keep = t.TempDir(), 48*time.Hour
	a, said := withFallback(t, s)
	files := map[string]bool{ // whether it goes once it is old
		"lifeboat-blocks/a/cache/-/x":                    true,
		"lifeboat-records/ab/cdef.json":                  true,
		"application_1_2/0/581811660/shuffle_0_0_0.data": true,
		"app-20260101000000-0001/3/shuffle_3_4_0.index":  true,
		"application_1_2/0/581811660/somebody.else":      false,
		"application_1_2/results.csv":                    false,
		"notes.txt":                                      false,
	}
	for name := range files {
		p := filepath.Join(s.Dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-50 * time.Hour)
		if err := os.Chtimes(p, at, at); err != nil {
			t.Fatal(err)
		}
	}
	young := filepath.Join(s.Dir, "lifeboat-blocks/a/cache/-/y")
	if err := os.WriteFile(young, []byte("y"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.sweepFallback(t.Context())
	for name, goes := range files {
		if _, err := os.Stat(filepath.Join(s.Dir, name)); (err != nil) != goes {
			t.Errorf("%s: got %v, want it gone: %t\n%s", name, err, goes, said)
		}
	}
	again := filepath.Join(s.Dir, "lifeboat-blocks/a/cache/-/again")
	for _, p := range []string{again, filepath.Join(s.Dir, "lifeboat-unfinished/dead")} {
		if err := os.WriteFile(p, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-50 * time.Hour)
		if err := os.Chtimes(p, at, at); err != nil {
			t.Fatal(err)
		}
	}
	a.sweepFallback(t.Context())
	if _, err := os.Stat(again); err != nil {
		t.Errorf("the directory was walked again a moment later: %v", err)
	}
	a.cfg.Fallback.Keep = 0
	hour := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(s.Dir, swept), hour, hour); err != nil {
		t.Fatal(err)
	}
	a.sweepFallback(t.Context())
	if _, err := os.Stat(again); err != nil {
		t.Errorf("without keep: %v, want it to stay for ever", err)
	}
	if left, err := os.ReadDir(filepath.Join(s.Dir, "lifeboat-unfinished")); err == nil && len(left) > 0 {
		t.Errorf("without keep: %d contents of killed writers are left", len(left))
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("what was put a moment ago: %v", err)
	}
}
