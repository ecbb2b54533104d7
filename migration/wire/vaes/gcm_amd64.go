package vaes

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"slices"
	"sync"

	"golang.org/x/sys/cpu"
)

// schedule is what the assembly reads; it knows the offsets. The hash key's powers go from the eighth to the first, and then
// come zeros: whoever hashes n blocks begins n before the zeros, and the blocks beyond count for nothing.
type schedule struct {
	rounds [11][2][16]byte // each twice, for two blocks
	powers [16][16]byte
	halves [16][16]byte // of each power, added up, for Karatsuba's way to multiply
}

// sealBlocks seals n bytes, which are whole batches, under the counter and those after it, and adds what it has sealed to the sum.
//
//go:noescape
func sealBlocks(k *schedule, sum, counter *[16]byte, dst, src *byte, n int)

// openBlocks is the reverse. It adds what it opens to the sum.
//
//go:noescape
func openBlocks(k *schedule, sum, counter *[16]byte, dst, src *byte, n int)

// hashBlocks adds the first n blocks of src to the sum. The others must be zero.
//
//go:noescape
func hashBlocks(k *schedule, sum *[16]byte, src *[batch]byte, n int)

// keyStream returns what a batch's bytes are added to, under the counter and those after it.
//
//go:noescape
func keyStream(k *schedule, counter *[16]byte, stream *[batch]byte)

// subWord is SubWord of FIPS 197, section 5.2.
func subWord(w uint32) uint32

func cpuid(leaf, sub uint32) (a, b, c, d uint32)

// batch is how many bytes the assembly takes at once: eight blocks.
const batch = 128

// Able reports whether this processor has the instructions, and computes with them what package crypto/cipher does.
var Able = sync.OnceValue(func() bool {
	const vaes, vpclmulqdq = 1 << 9, 1 << 10 // of CPUID's leaf 7, register ECX
	if most, _, _, _ := cpuid(0, 0); most < 7 || !cpu.X86.HasAVX2 || !cpu.X86.HasAES {
		return false
	}
	_, _, c, _ := cpuid(7, 0)
	return c&vaes != 0 && c&vpclmulqdq != 0 && known()
})

// known reports whether a text of two batches and some more is sealed and opened as package crypto/cipher does. It costs some
// microseconds, and a processor or hypervisor that gets it wrong shows itself at the start rather than amid a drain.
func known() bool {
	text := make([]byte, 2*batch+33)
	for i := range text {
		text[i] = byte(i)
	}
	key, nonce, header, end := text[:16], text[16:16+NonceSize], text[32:37], len(text)-1
	k, err := newKey(key)
	block, err2 := aes.NewCipher(key)
	if err != nil || err2 != nil {
		return false
	}
	theirs, err := cipher.NewGCM(block)
	if err != nil {
		return false
	}
	sealed := theirs.Seal(nil, nonce, text, header)
	opened, err := k.Open(nil, nonce, sealed, header)
	return err == nil && slices.Equal(opened, text) && slices.Equal(k.Seal(nil, nonce, text[:end], text[end], header), sealed)
}

// Key seals and opens with one key. Many goroutines may use it at once.
type Key struct{ schedule }

// New returns an error if the key is not of 16 bytes, or the processor is not Able.
func New(key []byte) (*Key, error) {
	if !Able() {
		return nil, errUnable
	}
	return newKey(key)
}

func newKey(key []byte) (*Key, error) {
	if len(key) != 16 {
		return nil, aes.KeySizeError(len(key))
	}
	k := new(Key)
	k.expand(key)
	k.hashKey()
	return k, nil
}

// expand is KeyExpansion of FIPS 197, section 5.2.
func (k *Key) expand(key []byte) {
	var w [4 * len(k.rounds)]uint32
	for i := range 4 {
		w[i] = binary.LittleEndian.Uint32(key[4*i:])
	}
	for i, rcon := 4, uint32(1); i < len(w); i++ {
		t := w[i-1]
		if i%4 == 0 {
			t = subWord(t>>8|t<<24) ^ rcon
			if rcon <<= 1; rcon > 0xff {
				rcon ^= 0x11b
			}
		}
		w[i] = w[i-4] ^ t
	}
	for i := range k.rounds {
		for j := range 4 {
			binary.LittleEndian.PutUint32(k.rounds[i][0][4*j:], w[4*i+j])
		}
		k.rounds[i][1] = k.rounds[i][0]
	}
}

// hashKey computes the powers of the hash key, which is the sealed block of zeros. The bits of a block mean a polynomial in
// reverse (SP 800-38D, section 6.3), and a product of two that are multiplied as they are is one place off. So the powers are
// divided by x beforehand (Gueron and Kounavis, Carry-Less Multiplication and Its Usage for Computing the GCM Mode, 2010).
func (k *Key) hashKey() {
	var stream [batch]byte
	keyStream(&k.schedule, new([16]byte), &stream)
	hi, lo := binary.BigEndian.Uint64(stream[:]), binary.BigEndian.Uint64(stream[8:])
	over := -(hi >> 63)
	hi, lo = hi<<1|lo>>63, lo<<1
	hi ^= over & 0xc200000000000000
	lo ^= over & 1
	var p [16]byte
	binary.LittleEndian.PutUint64(p[:], lo)
	binary.LittleEndian.PutUint64(p[8:], hi)
	for i := 7; ; i-- {
		k.powers[i] = p
		binary.LittleEndian.PutUint64(k.halves[i][:], binary.LittleEndian.Uint64(p[:])^binary.LittleEndian.Uint64(p[8:]))
		if i == 0 {
			return
		}
		hashBlocks(&k.schedule, &p, new([batch]byte), 1)
	}
}

// work is what sealing or opening one text needs besides the text.
type work struct {
	counter, sum [16]byte
	pad, stream  [batch]byte
}

func (w *work) begin(k *Key, nonce, additional []byte) {
	if len(nonce) != NonceSize {
		panic("vaes: a nonce has 12 bytes")
	}
	copy(w.counter[:], nonce)
	for len(additional) > 0 {
		n := w.fill(additional)
		hashBlocks(&k.schedule, &w.sum, &w.pad, (n+15)/16)
		additional = additional[n:]
	}
}

// fill puts the beginning of b into pad, and zeros behind it.
func (w *work) fill(b []byte) (n int) {
	n = copy(w.pad[:], b)
	clear(w.pad[n:])
	return n
}

// at sets the counter of the text's block i; the tag's is -1.
func (w *work) at(i int) { binary.BigEndian.PutUint32(w.counter[NonceSize:], uint32(i+2)) }

// mix adds the key stream of the text's block i and those after it to at most a batch.
func (w *work) mix(k *Key, dst, src []byte, i int) {
	if len(src) > 0 {
		w.at(i)
		keyStream(&k.schedule, &w.counter, &w.stream)
		subtle.XORBytes(dst, src, w.stream[:])
	}
}

// tag adds the end of the sealed text, at most a batch, and the lengths to the sum, and returns the tag.
func (w *work) tag(k *Key, end []byte, text, additional int) (tag [Overhead]byte) {
	blocks := (w.fill(end) + 15) / 16
	if 16*blocks == batch {
		hashBlocks(&k.schedule, &w.sum, &w.pad, blocks)
		blocks = w.fill(nil)
	}
	lengths := w.pad[16*blocks:]
	binary.BigEndian.PutUint64(lengths, 8*uint64(additional))
	binary.BigEndian.PutUint64(lengths[8:], 8*uint64(text))
	hashBlocks(&k.schedule, &w.sum, &w.pad, blocks+1)
	w.at(-1)
	keyStream(&k.schedule, &w.counter, &w.stream)
	for i := range tag {
		tag[i] = w.stream[i] ^ w.sum[15-i] // the sum is kept in reverse
	}
	return tag
}

// Seal appends to dst the sealed text, to which one byte more belongs, and the tag. What is sealed may begin where the text
// does, and else must not overlap it.
func (k *Key) Seal(dst, nonce, text []byte, last byte, additional []byte) []byte {
	size, whole := len(text)+1, len(text)&^(batch-1)
	all := slices.Grow(dst, size+Overhead)[:len(dst)+size+Overhead]
	out := all[len(dst):]
	var w work
	w.begin(k, nonce, additional)
	if whole > 0 {
		w.at(0)
		sealBlocks(&k.schedule, &w.sum, &w.counter, &out[0], &text[0], whole)
	}
	n := copy(w.pad[:], text[whole:])
	w.pad[n] = last
	w.mix(k, out[whole:], w.pad[:n+1], whole/16)
	tag := w.tag(k, out[whole:size], size, len(additional))
	copy(out[size:], tag[:])
	return all
}

// Open appends to dst what Seal was given. That may begin where the sealed text does, and else must not overlap it. Where the
// tag is wrong, it leaves zeros behind dst.
func (k *Key) Open(dst, nonce, sealed, additional []byte) ([]byte, error) {
	if len(sealed) < Overhead {
		return nil, errOpen
	}
	text := sealed[:len(sealed)-Overhead]
	whole := len(text) &^ (batch - 1)
	all := slices.Grow(dst, len(text))[:len(dst)+len(text)]
	out := all[len(dst):]
	var w work
	w.begin(k, nonce, additional)
	if whole > 0 {
		w.at(0)
		openBlocks(&k.schedule, &w.sum, &w.counter, &out[0], &text[0], whole)
	}
	tag := w.tag(k, text[whole:], len(text), len(additional))
	if subtle.ConstantTimeCompare(tag[:], sealed[len(text):]) != 1 {
		clear(out)
		return nil, errOpen
	}
	w.mix(k, out[whole:], text[whole:], whole/16)
	return all, nil
}
