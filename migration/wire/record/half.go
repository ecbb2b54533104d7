package record

import (
	"cmp"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"

	"github.com/lifeboat/lifeboat/migration/wire/vaes"
)

// half is one direction of a connection.
type half struct {
	secret []byte
	key    *vaes.Key
	iv     [vaes.NonceSize]byte
	seq    uint64 // of the next record under this key
}

func newHalf(secret []byte) (half, error) {
	h := half{secret: secret}
	key, err := expand(secret, "key", 16)
	iv, err2 := expand(secret, "iv", len(h.iv))
	if err := cmp.Or(err, err2); err != nil {
		return half{}, err
	}
	copy(h.iv[:], iv)
	h.key, err = vaes.New(key)
	return h, err
}

// next is the half after its keys were replaced (RFC 8446, section 7.2).
func (h *half) next() (half, error) {
	secret, err := expand(h.secret, "traffic upd", sha256.Size)
	if err != nil {
		return half{}, err
	}
	return newHalf(secret)
}

// expand is HKDF-Expand-Label without a context (RFC 8446, section 7.1).
func expand(secret []byte, label string, bytes int) ([]byte, error) {
	info := binary.BigEndian.AppendUint16(nil, uint16(bytes))
	info = append(info, byte(len("tls13 "+label)))
	info = append(info, "tls13 "+label+"\x00"...)
	return hkdf.Expand(sha256.New, secret, string(info), bytes)
}

// nonce is that of the next record (RFC 8446, section 5.3). No two have the same, because it counts them.
func (h *half) nonce() (n [vaes.NonceSize]byte) {
	n = h.iv
	binary.BigEndian.PutUint64(n[4:], binary.BigEndian.Uint64(n[4:])^h.seq)
	h.seq++
	return n
}
