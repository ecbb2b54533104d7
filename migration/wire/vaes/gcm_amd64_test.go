package vaes

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func able(t testing.TB) {
	if !Able() {
		t.Skip(errUnable)
	}
}

// both returns the key for this package and for crypto/cipher, whose own tests have the vectors of NIST and of others.
func both(t testing.TB, key []byte) (*Key, cipher.AEAD) {
	t.Helper()
	k, err := New(key)
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return k, theirs
}

// agree fails the test unless a text is sealed as crypto/cipher seals it, and opened again, elsewhere and in place.
func agree(t *testing.T, key, nonce, text, additional []byte) {
	t.Helper()
	k, theirs := both(t, key)
	sealed, end := theirs.Seal(nil, nonce, text, additional), len(text)-1
	ahead := []byte("what was there before")
	if got := k.Seal(slices.Clip(ahead), nonce, text[:end], text[end], additional); !bytes.Equal(got, append(slices.Clip(ahead), sealed...)) {
		t.Fatalf("%d bytes are sealed as %x, want %x behind what was there before", len(text), got, sealed)
	}
	if got, err := k.Open(slices.Clip(ahead), nonce, sealed, additional); err != nil || !bytes.Equal(got, append(slices.Clip(ahead), text...)) {
		t.Fatalf("%d bytes are opened as %x, %v, want %x behind what was there before", len(text), got, err, text)
	}
	room := append(make([]byte, 0, len(sealed)), text...)
	if k.Seal(room[:0], nonce, room[:end], text[end], additional); !bytes.Equal(room[:len(sealed)], sealed) {
		t.Fatalf("%d bytes are sealed in place as %x, want %x", len(text), room[:len(sealed)], sealed)
	}
	room = room[:len(sealed)]
	if got, err := k.Open(room[:0], nonce, room, additional); err != nil || !bytes.Equal(got, text) || &got[0] != &room[0] {
		t.Fatalf("%d bytes are opened in place as %x, %v", len(text), got, err)
	}
}

func TestAllLengths(t *testing.T) {
	able(t)
	src := rand.NewChaCha8([32]byte{})
	take := func(n int) []byte {
		b := make([]byte, n)
		src.Read(b)
		return b
	}
	for n := range 5 * batch {
		agree(t, take(16), take(NonceSize), take(n+1), take(n%(2*batch+5)))
	}
	agree(t, take(16), take(NonceSize), take(16<<10), take(5))
	agree(t, take(16), take(NonceSize), take(16<<10+1), take(5))
	agree(t, take(16), take(NonceSize), take(1<<20+77), nil)
}

// The cases 3 and 4 of the specification of GCM (McGrew and Viega, 2005, appendix B), so that not everything stands on one
// other implementation.
func TestSpecified(t *testing.T) {
	able(t)
	hex := func(s string) (b []byte) {
		if _, err := fmt.Sscanf(s, "%x", &b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	k, err := New(hex("feffe9928665731c6d6a8f9467308308"))
	if err != nil {
		t.Fatal(err)
	}
	nonce := hex("cafebabefacedbaddecaf888")
	text := hex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255")
	sealed := hex("42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985")
	if got := k.Seal(nil, nonce, text[:63], text[63], nil); !bytes.Equal(got, append(sealed, hex("4d5c2af327cd64a62cf35abd2ba6fab4")...)) {
		t.Errorf("case 3 is %x", got)
	}
	additional := hex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
	if got := k.Seal(nil, nonce, text[:59], text[59], additional); !bytes.Equal(got, append(sealed[:60:60], hex("5bc94fbc3221a5db94fae95ae7121a47")...)) {
		t.Errorf("case 4 is %x", got)
	}
}

// Whatever bit of it is flipped, nothing is opened, and nothing of the text is left behind.
func TestFlippedBits(t *testing.T) {
	able(t)
	key, nonce, additional := make([]byte, 16), make([]byte, NonceSize), []byte{23, 3, 3, 1, 0}
	k, err := New(key)
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("text "), 60)
	sealed := k.Seal(nil, nonce, text, 1, additional)
	for _, in := range [][]byte{sealed, nonce, additional} {
		for bit := range 8 * len(in) {
			in[bit/8] ^= 1 << (bit % 8)
			room := make([]byte, len(sealed))
			if got, err := k.Open(room[:0], nonce, sealed, additional); err == nil || got != nil {
				t.Fatalf("opened with bit %d flipped", bit)
			}
			if bytes.ContainsFunc(room, func(r rune) bool { return r != 0 }) {
				t.Fatalf("with bit %d flipped, %q is left", bit, room)
			}
			in[bit/8] ^= 1 << (bit % 8)
		}
	}
	for n := range len(sealed) {
		if _, err := k.Open(nil, nonce, sealed[:n], additional); err == nil {
			t.Fatalf("opened the first %d bytes of %d", n, len(sealed))
		}
	}
}

func TestOtherKeys(t *testing.T) {
	able(t)
	for _, n := range []int{0, 15, 24, 32} {
		if _, err := New(make([]byte, n)); err == nil {
			t.Errorf("a key of %d bytes was taken", n)
		}
	}
}

func FuzzAgrees(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), []byte("a nonce of 1"), []byte("text"), []byte{23, 3, 3, 0, 20})
	f.Fuzz(func(t *testing.T, key, nonce, text, additional []byte) {
		able(t)
		if len(key) != 16 || len(nonce) != NonceSize || len(text) == 0 {
			return
		}
		agree(t, key, nonce, text, additional)
	})
}

// BenchmarkRecord has records of full size, and of the size of a receipt.
func BenchmarkRecord(b *testing.B) {
	able(b)
	key, nonce, header := make([]byte, 16), make([]byte, NonceSize), make([]byte, 5)
	k, theirs := both(b, key)
	for _, n := range []int{16 << 10, 64} {
		text := make([]byte, n)
		sealed := k.Seal(nil, nonce, text, 23, header)
		room := make([]byte, 0, len(sealed))
		for name, f := range map[string]func(){
			"seal/vaes":   func() { k.Seal(room, nonce, text, 23, header) },
			"seal/cipher": func() { theirs.Seal(room, nonce, append(append(room, text...), 23), header) },
			"open/vaes":   func() { _, _ = k.Open(room, nonce, sealed, header) },
			"open/cipher": func() { _, _ = theirs.Open(room, nonce, sealed, header) },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					f()
				}
			})
		}
	}
}
