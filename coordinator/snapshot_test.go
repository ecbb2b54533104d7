package coordinator

import (
	"bytes"
	"encoding/json"
	"hash/crc32"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// headed is a body under a head that fits it, but for what change does.
func headed(t *testing.T, body []byte, change func(*saved)) []byte {
	t.Helper()
	head := saved{Lifeboat: savedKind, Version: commandVersion, SavedAt: t0, Bytes: len(body), CRC32C: crc32.Checksum(body, castagnoli)}
	change(&head)
	line, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	return append(append(line, '\n'), body...)
}

// A snapshot is taken whole or refused whole, with the reason, and before anything that is there is touched.
func TestSnapshotThatIsNone(t *testing.T) {
	body := []byte(written(t, newMachine()))
	same := func(*saved) {}
	whole := headed(t, body, same)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-3] ^= 1
	for _, s := range []struct {
		name string
		file []byte
		want string
	}{
		{"whole", whole, ""},
		{"of the version before", headed(t, body, func(h *saved) { h.Version = commandVersion - 1 }), ""},
		{"empty", nil, "not a snapshot"},
		{"foreign", []byte("-----BEGIN CERTIFICATE-----\n"), "not a snapshot"},
		{"another's JSON", []byte("{\"a\":1}\n{}"), "not a snapshot"},
		{"of no version", headed(t, body, func(h *saved) { h.Version = 0 }), "not a snapshot"},
		{"newer", headed(t, body, func(h *saved) { h.Version = commandVersion + 1 }), "restore it with the lifeboat that saved it"},
		{"cut short", whole[:len(whole)-1], "cut short"},
		{"longer", append(bytes.Clone(whole), '\n'), "cut short: it has"},
		{"damaged", flipped, "its checksum is another"},
		{"no machine", headed(t, []byte("[1]"), same), "snapshot"},
	} {
		cfg := Default()
		cfg.DataDir = t.TempDir()
		kept := cfg.DataDir + "/raft.db"
		if err := os.WriteFile(kept, []byte("what is there"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := readSnapshot(bytes.NewReader(s.file))
		if s.want == "" {
			if err != nil {
				t.Errorf("%s: got %v, want it read", s.name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), s.want) {
			t.Errorf("%s: got %v, want %q", s.name, err, s.want)
		}
		if _, err := Restore(cfg, bytes.NewReader(s.file), Restorer{}, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s: it was restored", s.name)
		}
		if is, err := os.ReadFile(kept); err != nil || string(is) != "what is there" {
			t.Errorf("%s: the log that was there is touched (%v)", s.name, err)
		}
	}
}
