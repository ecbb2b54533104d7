package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/lifeboat/lifeboat/migration/enginetest"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

func TestFramesRoundTrip(t *testing.T) {
	for _, size := range []int{0, 1, 100, ChunkBytes} {
		payload := enginetest.Content("payload", size)
		raw := AppendFrame(nil, FrameData, 7, payload)
		for _, r := range []io.Reader{bytes.NewReader(raw), iotest.HalfReader(bytes.NewReader(raw)), iotest.DataErrReader(bytes.NewReader(raw))} {
			f, err := NewReader(r, ChunkBytes).Next()
			if err != nil {
				t.Fatal(err)
			}
			if f.Type != FrameData || f.Transfer != 7 || !bytes.Equal(f.Payload, payload) || !bytes.Equal(f.Raw, raw) {
				t.Errorf("a frame of %d bytes came back as type %d, transfer %d, %d bytes", size, f.Type, f.Transfer, len(f.Payload))
			}
		}
	}
}

// What a segment keeps of a block, and a stream carries, is what it was: an earlier lifeboat's segments are read, and it reads these.
func TestFramesAreWrittenAsBefore(t *testing.T) {
	o := Opening{ID: "cache/-/x", Kind: "cache", Layout: "files", Origin: "a", ModTime: 7, Value: 8, Members: []MemberSize{{Name: "x", Bytes: 4}}}
	sum := NewSummer()
	sum.Member(4)
	sum.Chunk(crc32.Checksum([]byte("data"), Castagnoli))
	total := sum.Total()
	b := AppendFrame(nil, FrameHello, 0, Hello{Node: "a", Incident: "i", Alone: true}.Append(nil))
	b = AppendFrame(b, FrameOpen, 1, o.Append(nil))
	b = AppendFrame(b, FrameData, 1, []byte("data"))
	b = AppendFrame(b, FrameClose, 1, total[:])
	if got := fmt.Sprintf("%x", b); got != framesBefore {
		t.Errorf("got\n%s, want\n%s", got, framesBefore)
	}
}

// framesBefore is a stream of one block.
const framesBefore = "010000000000000500000000ab5332190161016901040000000000001e00000001dfe4be9d0963616368652f2d2f780563616368650566696c657301" +
	"610e1001017808050000000000000400000001fb2b6fd864617461060000000000001000000001ee17fd3e5549b3049f199be38e09448e599538f7"

func TestEveryFlippedBitOfAFrameIsRefused(t *testing.T) {
	raw := AppendFrame(nil, FrameOpen, 3, enginetest.Content("payload", 200))
	for bit := range len(raw) * 8 {
		bad := slices.Clone(raw)
		bad[bit/8] ^= 1 << (bit % 8)
		fr := NewReader(io.MultiReader(bytes.NewReader(bad), bytes.NewReader(raw)), ChunkBytes) // more follows, as on a stream
		if f, err := fr.Next(); err == nil {
			t.Errorf("bit %d of byte %d flipped, and it came through as type %d, %d bytes", bit%8, bit/8, f.Type, len(f.Payload))
		}
	}
}

func TestFramesCutShortAreNotTheEnd(t *testing.T) {
	raw := AppendFrame(nil, FrameOpen, 3, enginetest.Content("payload", 50))
	for n := range raw {
		_, err := NewReader(bytes.NewReader(raw[:n]), ChunkBytes).Next()
		if n == 0 && err != io.EOF || n > 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: got %v", n, err)
		}
	}
}

func TestFramesBeyondTheirBoundsAreRefusedUnread(t *testing.T) {
	for name, c := range map[string]struct {
		typ     FrameType
		length  uint32
		largest int
	}{
		"type 0":                    {0, 0, ChunkBytes},
		"an unknown type":           {FrameType(len(MaxPayload)), 0, ChunkBytes},
		"4 GiB of data":             {FrameData, 1<<32 - 1, ChunkBytes},
		"one byte more than a data": {FrameData, ChunkBytes + 1, ChunkBytes},
		"a long hello":              {FrameHello, 8<<10 + 1, ChunkBytes},
		"data where none belongs":   {FrameData, ChunkBytes, MaxPayload[FrameReceipts]},
	} {
		h := make([]byte, HeaderBytes)
		PutHeader(h, c.typ, 1, 0, 0)
		binary.BigEndian.PutUint32(h[4:], c.length)
		r := io.MultiReader(bytes.NewReader(h), readerFunc(func([]byte) (int, error) {
			t.Errorf("%s: read on after the header", name)
			return 0, io.EOF
		}))
		fr := NewReader(r, c.largest)
		if _, err := fr.Next(); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
		if len(fr.buf) != HeaderBytes+c.largest+min(c.largest, readAhead) {
			t.Errorf("%s: the buffer grew to %d bytes", name, len(fr.buf))
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func FuzzFrameReader(f *testing.F) {
	f.Add(AppendFrame(AppendFrame(nil, FrameHello, 0, Hello{Node: "a", Incident: "inc-1", Alone: false, Advised: true}.Append(nil)), FrameData, 1, []byte("x")))
	o := Opening{ID: "cache/-/x", Members: []MemberSize{{Name: "x", Bytes: 7}}}
	f.Add(AppendFrame(AppendFrame(nil, FrameOpen, 1, o.Append(nil)), FrameData, 1, []byte("content")))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr := NewReader(bytes.NewReader(b), ChunkBytes)
		var again []byte
		for {
			f, err := fr.Next()
			if err != nil {
				break
			}
			again = AppendFrame(again, f.Type, f.Transfer, f.Payload)
		}
		if !bytes.HasPrefix(b, again) {
			t.Errorf("%d bytes were read as frames that are written otherwise", len(again))
		}
	})
}

func TestPayloadsRoundTrip(t *testing.T) {
	o := Opening{ID: "spark/blockmgr-a/shuffle_1_2_0", Kind: inventory.KindShuffle, Layout: inventory.LayoutSpark, ModTime: -5,
		Members: []MemberSize{{Name: "shuffle_1_2_0.data", Bytes: 1 << 40}, {Name: "shuffle_1_2_0.index", Bytes: 0}}}
	if got, err := ParseOpening(o.Append(nil)); err != nil || got.ID != o.ID || got.ModTime != o.ModTime || !slices.Equal(got.Members, o.Members) {
		t.Errorf("got %+v, %v, want %+v", got, err, o)
	}
	for _, h := range []Hello{{Node: "a", Incident: "i", Alone: false, Advised: false}, {Node: "a", Incident: "i", Alone: true, Advised: false}, {Node: "a", Incident: "i", Alone: false, Advised: true}, {Node: "a", Incident: "i", Alone: true, Advised: true}} {
		if got, err := ParseHello(h.Append(nil)); err != nil || got != h {
			t.Errorf("hello: got %+v, %v, want %+v", got, err, h)
		}
	}
	for _, g := range []Grant{{RoomBytes: -1}, {RoomBytes: 1 << 40, Shared: true}, {Advised: true}, {Shared: true, Advised: true}, {RoomBytes: 7, VaultBytes: 7},
		{RoomBytes: 1 << 40, Shared: true, VaultBytes: 1 << 30, Places: []string{"spark", "tez"}}} {
		if got, err := ParseGrant(g.Append(nil)); err != nil || !reflect.DeepEqual(got, g) {
			t.Errorf("grant: got %+v, %v, want %+v", got, err, g)
		}
	}
	for _, h := range []Have{{}, {Transfer: 1<<32 - 1, Bytes: 1 << 50}} {
		if got, err := ParseHave(h.Append(nil)); err != nil || got != h {
			t.Errorf("have: got %+v, %v, want %+v", got, err, h)
		}
	}
	for _, r := range []Refuse{{Reason: "no", RetryMillis: 7, Stays: false}, {Reason: "no", RetryMillis: 7, Stays: true}} {
		if got, err := ParseRefuse(r.Append(nil)); err != nil || got != r {
			t.Errorf("refuse: got %+v, %v, want %+v", got, err, r)
		}
	}
	long := make([]Verdict, VerdictsPerFrame)
	for i := range long {
		long[i] = Verdict{Transfer: 1<<32 - 1, Code: VerdictFailed, Reason: strings.Repeat("r", 1000)}
	}
	b := AppendVerdicts(nil, long)
	if len(b) > MaxPayload[FrameReceipts] {
		t.Errorf("the longest receipts take %d bytes, a frame has %d", len(b), MaxPayload[FrameReceipts])
	}
	if got, err := ParseVerdicts(b); err != nil || len(got) != len(long) || len(got[0].Reason) != maxReasonBytes {
		t.Errorf("receipts: got %d, %v", len(got), err)
	}
}

// While a fleet is upgraded the two ends are of different builds. An older one leaves alone what a newer one adds, and still finds a bit that
// flipped in it.
func TestNewerPeersSayMore(t *testing.T) {
	hello, grant, refuse := Hello{Node: "a", Incident: "i", Advised: true}, Grant{RoomBytes: 7, Shared: true}, Refuse{Reason: "no", Stays: true}
	more := func(b []byte) []byte {
		b[len(b)-1] |= 1 << 7 // a flag
		return append(b, "and fields"...)
	}
	if got, err := ParseHello(more(hello.Append(nil))); err != nil || got != hello {
		t.Errorf("hello: got %+v, %v, want %+v", got, err, hello)
	}
	if got, err := ParseGrant(more(grant.Append(nil))); err != nil || !reflect.DeepEqual(got, grant) {
		t.Errorf("grant: got %+v, %v, want %+v", got, err, grant)
	}
	if got, err := ParseRefuse(more(refuse.Append(nil))); err != nil || got != refuse {
		t.Errorf("refuse: got %+v, %v, want %+v", got, err, refuse)
	}
	have := Have{Transfer: 3, Bytes: 9}
	if got, err := ParseHave(append(have.Append(nil), 1)); err != nil || got != have {
		t.Errorf("have: got %+v, %v, want %+v", got, err, have)
	}
	verdicts := []Verdict{{Transfer: 1, Code: 99, Reason: "so"}}
	if got, err := ParseVerdicts(append(AppendVerdicts(nil, verdicts), 1)); err != nil || !slices.Equal(got, verdicts) {
		t.Errorf("receipts: got %+v, %v, want %+v", got, err, verdicts)
	}

	unknown := AppendFrame(AppendFrame(nil, FrameType(len(MaxPayload)), 3, []byte("news")), 255, 0, make([]byte, MaxPayload[FrameReceipts]))
	stream := AppendFrame(slices.Clone(unknown), FrameAlive, 0, nil)
	if f, err := NewReplies(bytes.NewReader(stream)).Next(); err != nil || f.Type != FrameAlive {
		t.Errorf("behind frames of types that are not known: got type %d, %v", f.Type, err)
	}
	if _, err := NewReader(bytes.NewReader(stream), ChunkBytes).Next(); err == nil {
		t.Error("a frame of a type that is not known was read where both ends know all of them")
	}
	stream[HeaderBytes] ^= 1
	if _, err := NewReplies(bytes.NewReader(stream)).Next(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a bit flipped in a frame of a type that is not known: %v", err)
	}
	long := make([]byte, HeaderBytes)
	PutHeader(long, 255, 0, MaxPayload[FrameReceipts]+1, 0)
	if _, err := NewReplies(bytes.NewReader(long)).Next(); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a frame of a type that is not known, of more than is ever said: %v", err)
	}
}

// A peer's reason is put into manifests and messages, which are text: it is not cut amid a character.
func TestReasonsAreCutBetweenCharacters(t *testing.T) {
	for _, reason := range []string{strings.Repeat("é", maxReasonBytes), "x" + strings.Repeat("é", maxReasonBytes)} {
		got, err := ParseVerdicts(AppendVerdicts(nil, []Verdict{{Transfer: 1, Code: VerdictFailed, Reason: reason}}))
		if err != nil || !utf8.ValidString(got[0].Reason) || len(got[0].Reason) < maxReasonBytes-utf8.UTFMax {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

// An opening decides what is written where, so what does not make sense there is refused whole.
func TestOpeningsRefused(t *testing.T) {
	one := []MemberSize{{Name: "x", Bytes: 1}}
	for name, o := range map[string]Opening{
		"no members":           {ID: "cache/-/x"},
		"too many members":     {ID: "cache/-/x", Members: make([]MemberSize, MaxMembers+1)},
		"bad id":               {ID: "cache/-/../x", Members: one},
		"member outside":       {ID: "cache/-/x", Members: []MemberSize{{Name: "../../x", Bytes: 1}}},
		"member without name":  {ID: "cache/-/x", Members: []MemberSize{{Name: "", Bytes: 1}}},
		"negative size":        {ID: "cache/-/x", Members: []MemberSize{{Name: "x", Bytes: -1}}},
		"sizes that overflow":  {ID: "cache/-/x", Members: []MemberSize{{Name: "x", Bytes: 1<<63 - 1}, {Name: "y", Bytes: 1<<63 - 1}}},
		"one member two times": {ID: "cache/-/x", Members: []MemberSize{{Name: "x", Bytes: 1}, {Name: "x", Bytes: 1}}},
		"origin of no node":    {ID: "cache/-/x", Origin: "host-\xff", Members: one},
		"too long with origin": {ID: "cache/-/x", Kind: strings.Repeat("k", MaxPayload[FrameOpen]-100), Members: one},
	} {
		if got, err := ParseOpening(o.Append(nil)); err == nil {
			t.Errorf("%s: got %+v, want it refused", name, got)
		}
	}
	whole := Opening{ID: "cache/-/x", Members: one}.Append(nil)
	for n := range whole {
		if _, err := ParseOpening(whole[:n]); err == nil {
			t.Errorf("cut to %d of %d bytes, and accepted", n, len(whole))
		}
	}
	if _, err := ParseOpening(append(whole, 0)); err == nil {
		t.Error("accepted with a byte too many")
	}
}

func FuzzPayloads(f *testing.F) {
	o := Opening{ID: "cache/-/x", Members: []MemberSize{{Name: "x", Bytes: 1}}}
	f.Add(o.Append(nil))
	f.Add(AppendVerdicts(nil, []Verdict{{Transfer: 1, Code: VerdictFull, Reason: "full"}}))
	f.Add(Refuse{Reason: "r", RetryMillis: 1, Stays: true}.Append(nil))
	f.Add(Have{Transfer: 7, Bytes: 1 << 40}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := ParseOpening(b); err == nil {
			if again, err := ParseOpening(m.Append(nil)); err != nil || !slices.Equal(again.Members, m.Members) || m.Bytes() < 0 {
				t.Errorf("opening %+v: %v", m, err)
			}
			m.Origin = strings.Repeat("n", 128) // as it is handed on
			if on := m.Append(nil); len(on) > MaxPayload[FrameOpen] {
				t.Errorf("opening %+v takes %d bytes when it is handed on", m, len(on))
			}
		}
		if vs, err := ParseVerdicts(b); err == nil {
			if again, err := ParseVerdicts(AppendVerdicts(nil, vs)); err != nil || len(again) != len(vs) {
				t.Errorf("verdicts %+v: %v", vs, err)
			}
		}
		if h, err := ParseHave(b); err == nil {
			if again, err := ParseHave(h.Append(nil)); err != nil || again != h || h.Bytes < 0 {
				t.Errorf("have %+v: %v", h, err)
			}
		}
		ParseHello(b)
		ParseGrant(b)
		ParseRefuse(b)
	})
}

// Frames come through whole however they are cut on their way, and each stays as it is until the next is read.
func TestFramesComeInAnyPieces(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var stream []byte
	var want [][]byte
	for i := range 400 {
		size := rnd.IntN(1 << (1 + rnd.IntN(18)))
		payload := enginetest.Content(fmt.Sprint(i), size)
		want = append(want, payload)
		stream = AppendFrame(stream, FrameData, uint32(i), payload)
	}
	for name, r := range map[string]io.Reader{
		"at once":       bytes.NewReader(stream),
		"half of it":    iotest.HalfReader(bytes.NewReader(stream)),
		"with its end":  iotest.DataErrReader(bytes.NewReader(stream)),
		"TLS's records": readerFunc(records(stream, func() int { return 16 << 10 })),
		"any pieces":    readerFunc(records(stream, func() int { return 1 + rnd.IntN(40<<10) })),
	} {
		fr := NewReader(r, ChunkBytes)
		for i := range want {
			f, err := fr.Next()
			if err != nil || f.Transfer != uint32(i) || !bytes.Equal(f.Payload, want[i]) || len(f.Raw) != HeaderBytes+len(want[i]) {
				t.Fatalf("%s: frame %d: %v, transfer %d, %d bytes", name, i, err, f.Transfer, len(f.Payload))
			}
		}
		if _, err := fr.Next(); err != io.EOF {
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
