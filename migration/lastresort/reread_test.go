package lastresort

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// pieces is storage in memory. Its answers pass through damage.
type pieces struct {
	of     map[string][]byte
	damage func(answer []byte) []byte
}

func (p *pieces) Put(_ context.Context, name string, _ int64, content io.Reader, _ bool) (err error) {
	p.of[name], err = io.ReadAll(content)
	return err
}

func (p *pieces) Get(_ context.Context, name string, from int64, into []byte) (int, error) {
	if p.of[name] == nil {
		return 0, fs.ErrNotExist
	}
	n, _ := bytes.NewReader(p.of[name]).ReadAt(into, from)
	if n = len(p.damage(into[:n])); n < len(into) {
		return n, io.EOF
	}
	return n, nil
}

func (p *pieces) Stat(context.Context, string) (int64, string, time.Time, error) {
	return 0, "", time.Time{}, errors.New("nobody asks")
}

// What one answer in two has flipped or cut short on its way is read whole. What every answer has so is corrupt.
func TestDamageOnTheWayIsNoDamageOfTheBlock(t *testing.T) {
	const id = inventory.BlockID("cache/-/x")
	content := bytes.Repeat([]byte("lifeboat"), wire.ChunkBytes/4) // of two chunks
	var sums []byte
	for c := content; len(c) > 0; c = c[wire.ChunkBytes:] {
		sums = binary.BigEndian.AppendUint32(sums, crc32.Checksum(c[:wire.ChunkBytes], wire.Castagnoli))
	}
	r := Record{ID: id, Place: LayoutBlocks, Origin: "a", Members: []Member{{Name: "x", Bytes: int64(len(content)), Chunks: sums}}}
	r.Sum = r.Total()
	damages := map[string]func([]byte){"flipped": func(b []byte) { b[0] ^= 4 }, "cut short": nil}
	for how, flip := range damages {
		for _, always := range []bool{false, true} {
			answers := 0
			p := &pieces{of: map[string][]byte{}, damage: func(answer []byte) []byte { return answer }}
			s := &Storage{Layout: LayoutBlocks, Objects: p}
			if err := s.PutRecord(t.Context(), r, true); err != nil {
				t.Fatal(err)
			}
			p.of[r.Names()[0]] = content
			p.damage = func(answer []byte) []byte {
				if answers++; !always && answers%2 == 0 {
					return answer
				}
				if flip == nil {
					return answer[:len(answer)/2]
				}
				flip(answer)
				return answer
			}
			got, err := read(t.Context(), s, id)
			if !always && (err != nil || !bytes.Equal(got, content)) || always && !errors.Is(err, wire.ErrCorrupt) {
				t.Errorf("%s, always %t: got %d bytes and %v", how, always, len(got), err)
			}
		}
	}
}

func read(ctx context.Context, s *Storage, id inventory.BlockID) ([]byte, error) {
	c, err := s.Open(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("open it: %w", err)
	}
	defer c.Close()
	return io.ReadAll(c)
}
