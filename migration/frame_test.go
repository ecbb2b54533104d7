package migration

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"
)

func TestFramesRoundTrip(t *testing.T) {
	for _, size := range []int{0, 1, 100, ChunkBytes} {
		payload := contentOf("payload", size)
		raw := appendFrame(nil, frameData, 7, payload)
		for _, r := range []io.Reader{bytes.NewReader(raw), iotest.HalfReader(bytes.NewReader(raw)), iotest.DataErrReader(bytes.NewReader(raw))} {
			f, err := newFrameReader(r, ChunkBytes).next()
			if err != nil {
				t.Fatal(err)
			}
			if f.typ != frameData || f.transfer != 7 || !bytes.Equal(f.payload, payload) || !bytes.Equal(f.raw, raw) {
				t.Errorf("a frame of %d bytes came back as type %d, transfer %d, %d bytes", size, f.typ, f.transfer, len(f.payload))
			}
		}
	}
}

func TestEveryFlippedBitOfAFrameIsRefused(t *testing.T) {
	raw := appendFrame(nil, frameOpen, 3, contentOf("payload", 200))
	for bit := range len(raw) * 8 {
		bad := slices.Clone(raw)
		bad[bit/8] ^= 1 << (bit % 8)
		fr := newFrameReader(io.MultiReader(bytes.NewReader(bad), bytes.NewReader(raw)), ChunkBytes) // more follows, as on a stream
		if f, err := fr.next(); err == nil {
			t.Errorf("bit %d of byte %d flipped, and it came through as type %d, %d bytes", bit%8, bit/8, f.typ, len(f.payload))
		}
	}
}

func TestFramesCutShortAreNotTheEnd(t *testing.T) {
	raw := appendFrame(nil, frameOpen, 3, contentOf("payload", 50))
	for n := range raw {
		_, err := newFrameReader(bytes.NewReader(raw[:n]), ChunkBytes).next()
		if n == 0 && err != io.EOF || n > 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: got %v", n, err)
		}
	}
}

func TestFramesBeyondTheirBoundsAreRefusedUnread(t *testing.T) {
	for name, c := range map[string]struct {
		typ     frameType
		length  uint32
		largest int
	}{
		"type 0":                    {0, 0, ChunkBytes},
		"an unknown type":           {frameType(len(maxPayload)), 0, ChunkBytes},
		"4 GiB of data":             {frameData, 1<<32 - 1, ChunkBytes},
		"one byte more than a data": {frameData, ChunkBytes + 1, ChunkBytes},
		"a long hello":              {frameHello, 8<<10 + 1, ChunkBytes},
		"data where none belongs":   {frameData, ChunkBytes, maxPayload[frameReceipts]},
	} {
		h := make([]byte, headerBytes)
		putHeader(h, c.typ, 1, 0, 0)
		binary.BigEndian.PutUint32(h[4:], c.length)
		r := io.MultiReader(bytes.NewReader(h), readerFunc(func([]byte) (int, error) {
			t.Errorf("%s: read on after the header", name)
			return 0, io.EOF
		}))
		fr := newFrameReader(r, c.largest)
		if _, err := fr.next(); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
		if len(fr.buf) != headerBytes+c.largest+min(c.largest, readAhead) {
			t.Errorf("%s: the buffer grew to %d bytes", name, len(fr.buf))
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func FuzzFrameReader(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, frameHello, 0, hello{"a", "inc-1", false, true, false, true}.append(nil)), frameData, 1, []byte("x")))
	f.Add(blockFrames(1, "cache/-/x", []byte("content")))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr := newFrameReader(bytes.NewReader(b), ChunkBytes)
		var again []byte
		for {
			f, err := fr.next()
			if err != nil {
				break
			}
			again = appendFrame(again, f.typ, f.transfer, f.payload)
		}
		if !bytes.HasPrefix(b, again) {
			t.Errorf("%d bytes were read as frames that are written otherwise", len(again))
		}
	})
}

func TestPayloadsRoundTrip(t *testing.T) {
	o := opening{ID: "spark/blockmgr-a/shuffle_1_2_0", Kind: KindShuffle, Layout: LayoutSpark, ModTime: -5,
		Members: []memberSize{{"shuffle_1_2_0.data", 1 << 40}, {"shuffle_1_2_0.index", 0}}}
	if got, err := parseOpening(o.append(nil)); err != nil || got.ID != o.ID || got.ModTime != o.ModTime || !slices.Equal(got.Members, o.Members) {
		t.Errorf("got %+v, %v, want %+v", got, err, o)
	}
	for _, h := range []hello{{"a", "i", false, false, false, false}, {"a", "i", true, false, true, true}, {"a", "i", false, true, false, true}, {"a", "i", true, true, true, false}} {
		if got, err := parseHello(h.append(nil)); err != nil || got != h {
			t.Errorf("hello: got %+v, %v, want %+v", got, err, h)
		}
	}
	for _, g := range []grant{{RoomBytes: -1}, {RoomBytes: 1 << 40, Shared: true}, {Advised: true}, {Shared: true, Advised: true}, {Resumes: true}, {Quota: true}, {RoomBytes: 7, Apart: &vaultRoom{}},
		{RoomBytes: 1 << 40, Shared: true, Apart: &vaultRoom{VaultBytes: 1 << 30, Places: []string{"spark", "tez"}}, Resumes: true}} {
		if got, err := parseGrant(g.append(nil)); err != nil || !reflect.DeepEqual(got, g) {
			t.Errorf("grant: got %+v, %v, want %+v", got, err, g)
		}
	}
	for _, h := range []have{{}, {1<<32 - 1, 1 << 50}} {
		if got, err := parseHave(h.append(nil)); err != nil || got != h {
			t.Errorf("have: got %+v, %v, want %+v", got, err, h)
		}
	}
	for _, r := range []refuse{{"no", 7, false}, {"no", 7, true}} {
		if got, err := parseRefuse(r.append(nil)); err != nil || got != r {
			t.Errorf("refuse: got %+v, %v, want %+v", got, err, r)
		}
	}
	long := make([]verdict, verdictsPerFrame)
	for i := range long {
		long[i] = verdict{1<<32 - 1, verdictFailed, strings.Repeat("r", 1000)}
	}
	b := appendVerdicts(nil, long)
	if len(b) > maxPayload[frameReceipts] {
		t.Errorf("the longest receipts take %d bytes, a frame has %d", len(b), maxPayload[frameReceipts])
	}
	if got, err := parseVerdicts(b); err != nil || len(got) != len(long) || len(got[0].Reason) != maxReasonBytes {
		t.Errorf("receipts: got %d, %v", len(got), err)
	}
	r := record{opening: o, From: "a", Landed: time.Unix(0, 99), Sum: Sum{1, 2}, Segment: 3, Offset: 4, OpenLen: 5, Length: 6,
		Placed: []placed{{1, "p", 7, []byte("abcd")}}}
	if got, err := parseRecord(appendRecord(nil, r)); err != nil || !bytes.Equal(appendRecord(nil, got), appendRecord(nil, r)) {
		t.Errorf("record: got %+v, %v", got, err)
	}
	blk := Block{ID: "cache/-/x", Kind: KindCache, Layout: LayoutFiles, Members: []Member{{Name: "x", Bytes: 3, ModTime: time.Unix(0, 9), root: 1, path: "x", ctim: 8}}}
	came := blk
	came.value, came.origin, came.traced, came.spare = time.Hour, "home", true, true
	own := blk
	own.traced = true
	for _, want := range []Block{blk, came, own} {
		got, err := parseBlock(appendBlock(nil, want), Block{origin: "another", traced: true}, new(roster))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("block: got %+v, %v, want %+v", got, err, want)
		}
	}
}

// What a peer says of a block stands in manifests and messages, which are text: it is not cut amid a character.
func TestReasonsAreCutBetweenCharacters(t *testing.T) {
	for _, reason := range []string{strings.Repeat("é", maxReasonBytes), "x" + strings.Repeat("é", maxReasonBytes)} {
		got, err := parseVerdicts(appendVerdicts(nil, []verdict{{Transfer: 1, Code: verdictFailed, Reason: reason}}))
		if err != nil || !utf8.ValidString(got[0].Reason) || len(got[0].Reason) < maxReasonBytes-utf8.UTFMax {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

// An opening decides what is written where, so what does not make sense there is refused whole.
func TestOpeningsRefused(t *testing.T) {
	one := []memberSize{{"x", 1}}
	for name, o := range map[string]opening{
		"no members":           {ID: "cache/-/x"},
		"too many members":     {ID: "cache/-/x", Members: make([]memberSize, maxMembers+1)},
		"bad id":               {ID: "cache/-/../x", Members: one},
		"member outside":       {ID: "cache/-/x", Members: []memberSize{{"../../x", 1}}},
		"member without name":  {ID: "cache/-/x", Members: []memberSize{{"", 1}}},
		"negative size":        {ID: "cache/-/x", Members: []memberSize{{"x", -1}}},
		"sizes that overflow":  {ID: "cache/-/x", Members: []memberSize{{"x", 1<<63 - 1}, {"y", 1<<63 - 1}}},
		"one member two times": {ID: "cache/-/x", Members: []memberSize{{"x", 1}, {"x", 1}}},
	} {
		if got, err := parseOpening(o.append(nil)); err == nil {
			t.Errorf("%s: got %+v, want it refused", name, got)
		}
	}
	whole := opening{ID: "cache/-/x", Members: one}.append(nil)
	for n := range whole {
		if _, err := parseOpening(whole[:n]); err == nil {
			t.Errorf("cut to %d of %d bytes, and accepted", n, len(whole))
		}
	}
	if _, err := parseOpening(append(whole, 0)); err == nil {
		t.Error("accepted with a byte too many")
	}
}

func FuzzPayloads(f *testing.F) {
	o := opening{ID: "cache/-/x", Members: []memberSize{{"x", 1}}}
	f.Add(o.append(nil))
	f.Add(appendVerdicts(nil, []verdict{{1, verdictFull, "full"}}))
	f.Add(appendRecord(nil, record{opening: o, Placed: []placed{{0, "x", 1, []byte("abcd")}}}))
	f.Add(appendBlock(nil, Block{ID: "cache/-/x", Members: []Member{{Name: "x"}}}))
	f.Add(refuse{"r", 1, true}.append(nil))
	f.Add(have{7, 1 << 40}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := parseOpening(b); err == nil {
			if again, err := parseOpening(m.append(nil)); err != nil || !slices.Equal(again.Members, m.Members) || m.bytes() < 0 {
				t.Errorf("opening %+v: %v", m, err)
			}
		}
		if vs, err := parseVerdicts(b); err == nil {
			if again, err := parseVerdicts(appendVerdicts(nil, vs)); err != nil || len(again) != len(vs) {
				t.Errorf("verdicts %+v: %v", vs, err)
			}
		}
		if r, err := parseRecord(b); err == nil {
			if _, err := parseRecord(appendRecord(nil, r)); err != nil {
				t.Errorf("record %+v: %v", r, err)
			}
		}
		if blk, err := parseBlock(b, Block{}, new(roster)); err == nil {
			if again, err := parseBlock(appendBlock(nil, blk), Block{}, new(roster)); err != nil || again.version() != blk.version() {
				t.Errorf("block %+v: %v", blk, err)
			}
		}
		if h, err := parseHave(b); err == nil {
			if again, err := parseHave(h.append(nil)); err != nil || again != h || h.Bytes < 0 {
				t.Errorf("have %+v: %v", h, err)
			}
		}
		parseHello(b)
		parseGrant(b)
		parseRefuse(b)
	})
}

func TestReadIndex(t *testing.T) {
	index := func(offsets ...uint64) (b []byte) {
		for _, o := range offsets {
			b = binary.BigEndian.AppendUint64(b, o)
		}
		return b
	}
	big := make([]uint64, 20_000)
	for i := range big {
		big[i] = uint64(i)
	}
	for name, c := range map[string]struct {
		index []byte
		size  int64
		end   int64
		fault string
	}{
		"three partitions":   {index(0, 10, 10, 30), 32, 30, ""},
		"empty output":       {index(0, 0), 16, 0, ""},
		"no partition":       {index(0), 8, 0, ""},
		"many":               {index(big...), 160_000, 19_999, ""},
		"empty file":         {nil, 0, 0, "0 bytes"},
		"not a multiple":     {index(0, 1)[:15], 15, 0, "15 bytes"},
		"first not 0":        {index(1, 2), 16, 0, "begins with 1"},
		"falling":            {index(0, 10, 9), 24, 0, "falls from 10 to 9"},
		"negative":           {index(0, 1<<63), 16, 0, "falls"},
		"cut since its stat": {index(0, 10), 24, 0, "cut short"},
	} {
		end, err := readIndex(bytes.NewReader(c.index), c.size)
		switch {
		case c.fault == "" && (err != nil || end != c.end):
			t.Errorf("%s: got %d, %v, want %d", name, end, err, c.end)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s: got %v, want %q", name, err, c.fault)
		}
	}
}

func FuzzReadIndex(f *testing.F) {
	f.Add(binary.BigEndian.AppendUint64(make([]byte, 8), 5), int64(16))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		end, err := readIndex(bytes.NewReader(b), size)
		if err == nil && (end < 0 || size > int64(len(b)) || binary.BigEndian.Uint64(b[size-8:]) != uint64(end)) {
			t.Errorf("%d bytes said to be %d: got %d", len(b), size, end)
		}
	})
}

// Frames come through whole however they are cut on their way, and each stays as it is until the next is read.
func TestFramesComeInAnyPieces(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var stream []byte
	var want [][]byte
	for i := range 400 {
		size := rnd.IntN(1 << (1 + rnd.IntN(18)))
		payload := contentOf(fmt.Sprint(i), size)
		want = append(want, payload)
		stream = appendFrame(stream, frameData, uint32(i), payload)
	}
	for name, r := range map[string]io.Reader{
		"at once":       bytes.NewReader(stream),
		"half of it":    iotest.HalfReader(bytes.NewReader(stream)),
		"with its end":  iotest.DataErrReader(bytes.NewReader(stream)),
		"TLS's records": readerFunc(records(stream, func() int { return 16 << 10 })),
		"any pieces":    readerFunc(records(stream, func() int { return 1 + rnd.IntN(40<<10) })),
	} {
		fr := newFrameReader(r, ChunkBytes)
		for i := range want {
			f, err := fr.next()
			if err != nil || f.transfer != uint32(i) || !bytes.Equal(f.payload, want[i]) || len(f.raw) != headerBytes+len(want[i]) {
				t.Fatalf("%s: frame %d: %v, transfer %d, %d bytes", name, i, err, f.transfer, len(f.payload))
			}
		}
		if _, err := fr.next(); err != io.EOF {
			t.Errorf("%s: got %v at the end, want EOF", name, err)
		}
	}
}

// records hands out a stream in pieces.
func records(stream []byte, size func() int) func([]byte) (int, error) {
	var piece []byte
	return func(p []byte) (int, error) {
		if len(piece) == 0 {
			if len(stream) == 0 {
				return 0, io.EOF
			}
			n := min(size(), len(stream))
			piece, stream = stream[:n], stream[n:]
		}
		n := copy(p, piece)
		piece = piece[n:]
		return n, nil
	}
}
