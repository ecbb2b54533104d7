package certs

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Pin is the SHA-256 of a CA's public key (its SubjectPublicKeyInfo, as in RFC 7469). It tells the fleet's CA from any other.
type Pin [sha256.Size]byte

// String is the pin as a token has it.
func (p Pin) String() string { return base64.RawURLEncoding.EncodeToString(p[:]) }

// ParsePin reads what String wrote.
func ParsePin(s string) (p Pin, err error) {
	if !fills(p[:], s) {
		return Pin{}, errNoPin
	}
	return p, nil
}

// fills decodes s, and reports whether s was the canonical encoding of exactly len(into) bytes.
func fills(into []byte, s string) bool {
	enc := base64.RawURLEncoding.Strict()
	if len(s) != enc.EncodedLen(len(into)) {
		return false
	}
	n, err := enc.Decode(into, []byte(s))
	return err == nil && n == len(into)
}

var errNoPin = errors.New("is no pin of a CA: lifeboat tls pin FILE prints one")

// PinsOf are the pins of the CAs in a file.
func PinsOf(caFile string) (pins []Pin, err error) {
	cas, err := ReadCertificates(caFile)
	for _, ca := range cas {
		pins = append(pins, pinOf(ca))
	}
	return pins, err
}

func pinOf(ca *x509.Certificate) Pin { return sha256.Sum256(ca.RawSubjectPublicKeyInfo) }

// Token is what an operator gives to a machine that is to join. The machine checks the coordinator's CA against the pin before it sends
// the secret, so that no one in between learns it.
type Token struct {
	ID     string // public: 12 hexadecimal digits
	Secret [24]byte
	Pin    Pin
}

// tokenPrefix names the format, so that secret scanners find tokens, and a later format can be told from this one.
const tokenPrefix = "lifeboat1"

// NewToken makes a random token for the fleet of a CA.
func NewToken(pin Pin) Token {
	t := Token{Pin: pin}
	var id [6]byte
	rand.Read(id[:])
	rand.Read(t.Secret[:])
	t.ID = hex.EncodeToString(id[:])
	return t
}

// String is the token as it is given away: lifeboat1.ID.SECRET.PIN.
func (t Token) String() string {
	enc := base64.RawURLEncoding
	return strings.Join([]string{tokenPrefix, t.ID, enc.EncodeToString(t.Secret[:]), t.Pin.String()}, ".")
}

// Sum is the hash of the secret that the coordinators keep. A plain hash will do: the secret has 192 random bits, which nobody can guess.
func (t Token) Sum() string {
	sum := sha256.Sum256(t.Secret[:])
	return hex.EncodeToString(sum[:])
}

// Is reports whether sum is of the token's secret. It takes the same time for all sums, so that the time gives away nothing.
func (t Token) Is(sum string) bool {
	return subtle.ConstantTimeCompare([]byte(t.Sum()), []byte(sum)) == 1
}

// ParseToken reads what String wrote. The error never repeats the secret.
func ParseToken(s string) (Token, error) {
	parts := strings.Split(strings.TrimSpace(s), ".")
	if len(parts) != 4 || parts[0] != tokenPrefix {
		return Token{}, errors.New("join token: must read " + tokenPrefix + ".ID.SECRET.PIN: lifeboat token create prints one")
	}
	t := Token{ID: parts[1]}
	if id, err := hex.DecodeString(t.ID); err != nil || len(id) != 6 || t.ID != strings.ToLower(t.ID) {
		return Token{}, fmt.Errorf("join token: %.20q is no id: was the token cut?", t.ID)
	}
	if !fills(t.Secret[:], parts[2]) {
		return Token{}, errors.New("join token: its secret is not whole: was the token cut?")
	}
	if !fills(t.Pin[:], parts[3]) {
		return Token{}, errors.New("join token: its pin is not whole: was the token cut?")
	}
	return t, nil
}

// Pick returns the pinned CA from a PEM file that anybody may have sent, and ignores all others.
func (p Pin) Pick(cas []byte) ([]byte, error) {
	all, err := parseCerts("the CA that was sent", cas)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		if got := pinOf(c); c.IsCA && subtle.ConstantTimeCompare(got[:], p[:]) == 1 {
			return certPEM(c.Raw), nil
		}
	}
	return nil, errors.New("the CA that was sent is not the one that the token or the settings pin: this is another fleet, or somebody between us")
}
