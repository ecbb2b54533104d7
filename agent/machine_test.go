package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

func TestMoveIn(t *testing.T) {
	for name, c := range map[string]struct {
		was, here string
		forgets   bool
		mark      string
	}{
		"first time":                     {"", "product a", false, "product a"},
		"same machine":                   {"product a", "product a", false, "product a"},
		"clone":                          {"product a", "product b", true, "product b"},
		"clone without a product":        {"machine-id a", "machine-id b", true, "machine-id b"},
		"product was not readable":       {"machine-id a", "product b", false, "machine-id a"},
		"machine that cannot be told":    {"product a", "", false, "product a"},
		"image of one that could not be": {"", "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.was != "" {
				write(t, filepath.Join(dir, "machine"), c.was+"\n")
			}
			before, err := incarnation(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"incident.json", "incidents/inc-1/moved.jsonl", "vault/catalog.db"} {
				write(t, filepath.Join(dir, name), "{}")
			}
			if err := moveIn(dir, c.here, slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
			after, err := incarnation(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := after != before; got != c.forgets {
				t.Errorf("another incarnation: got %v, want %v", got, c.forgets)
			}
			for _, name := range []string{"incident.json", "incidents"} {
				if _, err := os.Stat(filepath.Join(dir, name)); os.IsNotExist(err) != c.forgets {
					t.Errorf("%s: got %v, want it gone: %v", name, err, c.forgets)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "vault/catalog.db")); err != nil {
				t.Errorf("the blocks: %v", err)
			}
			mark, _ := os.ReadFile(filepath.Join(dir, "machine"))
			if got := string(mark); got != c.mark && got != c.mark+"\n" {
				t.Errorf("got the mark %q, want %q", got, c.mark)
			}
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
