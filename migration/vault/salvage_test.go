package vault

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Segments are bytes on a disk: whatever they are, salvage ends, and finds no block whose bytes are not its own.
func FuzzSalvage(f *testing.F) {
	x, _ := frames("cache/-/x", 300)
	h := wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: "a"}.Append(nil))
	f.Add(append(bytes.Clone(h), x...))
	f.Add(append(append(bytes.Clone(x), make([]byte, 50)...), x...))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := filepath.Join(t.TempDir(), "seg")
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := salvage(p, 1, func(r catalog.Record) error {
			if r.Offset < 0 || r.Offset+r.Length > int64(len(b)) || !bytes.Contains(b[r.Offset:r.Offset+r.OpenLen], []byte(r.ID)) {
				t.Errorf("found %+v", r)
			}
			return nil
		}, func(Held) {})
		if err != nil || s.end > int64(len(b)) {
			t.Errorf("ends at %d of %d: %v", s.end, len(b), err)
		}
	})
}
