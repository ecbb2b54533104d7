package fields

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

func TestFieldsRoundTrip(t *testing.T) {
	b := binary.AppendVarint(binary.AppendUvarint(AppendString(AppendString(nil, "spark"), ""), 1<<40), -7)
	b = AppendFlags(AppendString(append(b, 9), "kept"), true, false, true)
	for name, decode := range map[string]func([]byte) Decoder{"one by one": Decode, "of one copy": DecodeText} {
		d := decode(b)
		var first, second, third bool
		if s, empty, n, i, one, kept := d.Text(), d.Text(), d.Uvarint(), d.Varint(), d.Byte(), string(d.Bytes()); s != "spark" || empty != "" || n != 1<<40 || i != -7 || one != 9 || kept != "kept" {
			t.Errorf("%s: got %q, %q, %d, %d, %d, %q", name, s, empty, n, i, one, kept)
		}
		if d.Flags(&first, &second, &third); !first || second || !third {
			t.Errorf("%s: got flags %v, %v, %v", name, first, second, third)
		}
		if err := d.End("test"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// After the first fault every further field is zero, and the end tells of it.
func TestFieldsCutShort(t *testing.T) {
	whole := binary.AppendUvarint(AppendString(nil, "spark"), 300)
	for n := range whole {
		d := Decode(whole[:n])
		d.Text()
		if d.Uvarint(); d.Sound() || d.Varint() != 0 || d.Text() != "" || d.Byte() != 0 {
			t.Errorf("%d bytes of %d: a field was taken after what is cut short", n, len(whole))
		}
		if err := d.End("test"); !errors.Is(err, errShort) || !strings.Contains(err.Error(), "payload of test") {
			t.Errorf("%d bytes of %d: got %v", n, len(whole), err)
		}
	}
	d := Decode(append(whole, 1))
	d.Text()
	d.Uvarint()
	if err := d.End("test"); err == nil || !strings.Contains(err.Error(), "1 bytes too many") {
		t.Errorf("got %v of what nobody took", err)
	}
}
