package main

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/dev/corpus"
)

// testBareStream builds the program barestream, with certificates of its own.
func testBareStream(t *testing.T, work string) *bareStream {
	t.Helper()
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pki := filepath.Join(work, "pki")
	if err := certs.InitCA(pki); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"source", "sink"} {
		if _, _, err := certs.Issue(pki, certs.Name{Role: certs.RoleNode, Name: node}, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	s, err := newBareStream(t.Context(), root, work, pki)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bareFrame is a frame as bench/barestream writes it.
func bareFrame(last uint16, path string, piece uint32, body string) []byte {
	b := binary.BigEndian.AppendUint16(nil, last)
	b = binary.BigEndian.AppendUint16(b, uint16(len(path)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(path+body)))
	b = binary.BigEndian.AppendUint32(b, piece)
	sum := crc32.Checksum(append([]byte(path+body), b...), crc32.MakeTable(crc32.Castagnoli))
	return append(binary.BigEndian.AppendUint32(b, sum), path+body...)
}

// A contender that is fast because it left something out fails its run.
func TestCheckSegments(t *testing.T) {
	from := source{files: corpus.Corpus{Blocks: 2, Files: []corpus.File{
		{Name: "x/long", SHA256: sha256.Sum256([]byte("the beginning and the end"))},
		{Name: "x/empty", SHA256: sha256.Sum256(nil)},
	}}}
	begin, end, empty := bareFrame(0, "x/long", 0, "the beginning "), bareFrame(1, "", 1, "and the end"), bareFrame(1, "x/empty", 0, "")
	flipped := slices.Clone(begin)
	flipped[30] ^= 1
	for _, c := range []struct {
		what     string
		ok       bool
		segments [][]byte
	}{
		{"all in one", true, [][]byte{slices.Concat(begin, end, empty)}},
		{"two segments", true, [][]byte{empty, slices.Concat(begin, end)}},
		{"a file is missing", false, [][]byte{slices.Concat(begin, end)}},
		{"none", false, nil},
		{"a file came twice", false, [][]byte{slices.Concat(begin, end, empty), empty}},
		{"a piece is missing", false, [][]byte{slices.Concat(begin, empty)}},
		{"a file does not end", false, [][]byte{slices.Concat(empty, begin)}},
		{"a piece in another's place", false, [][]byte{slices.Concat(begin, bareFrame(1, "", 2, "and the end"), empty)}},
		{"other bytes", false, [][]byte{slices.Concat(begin, bareFrame(1, "", 1, "and the End"), empty)}},
		{"a flipped bit", false, [][]byte{slices.Concat(flipped, end, empty)}},
		{"a cut header", false, [][]byte{slices.Concat(begin, end, empty)[:len(begin)+len(end)+9]}},
		{"a cut piece", false, [][]byte{slices.Concat(empty, begin, end[:20])}},
		{"a stranger", false, [][]byte{slices.Concat(begin, end, empty, bareFrame(1, "y", 0, ""))}},
	} {
		dir := t.TempDir()
		for i, b := range c.segments {
			if err := os.WriteFile(filepath.Join(dir, string(rune('0'+i))+".segment"), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := checkSegments(dir, from); (err == nil) != c.ok {
			t.Errorf("%s: got error %v", c.what, err)
		}
	}
}

func TestWriteIndex(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"sub/two": "22", "one": "1", "sub/none": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	index := filepath.Join(t.TempDir(), "index")
	if err := writeIndex(index, dir); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(index); err != nil || string(got) != "1 one\n0 sub/none\n2 sub/two\n" {
		t.Errorf("got %q and error %v", got, err)
	}
}

// Blocks that became files are there by name, and byte for byte.
func TestNamed(t *testing.T) {
	from := source{files: corpus.Corpus{Files: []corpus.File{{Name: "x/one", SHA256: sha256.Sum256([]byte("one"))}, {Name: "two", SHA256: sha256.Sum256([]byte("two"))}}}}
	for _, c := range []struct {
		what  string
		ok    bool
		files map[string]string
	}{
		{"all", true, map[string]string{"x/one": "one", "two": "two"}},
		{"one is missing", false, map[string]string{"two": "two"}},
		{"other bytes", false, map[string]string{"x/one": "One", "two": "two"}},
		{"a stranger", false, map[string]string{"x/one": "one", "two": "two", "three": "3"}},
	} {
		f := &fleet{dir: t.TempDir()}
		for name, content := range c.files {
			p := filepath.Join(f.dir, "store", name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(content), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.named(from); (err == nil) != c.ok {
			t.Errorf("%s: got error %v", c.what, err)
		}
	}
}
