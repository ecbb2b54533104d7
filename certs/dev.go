package certs

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"
)

// devSeed is public, so anybody who reads this can have any identity in a fleet that trusts it.
const devSeed = "lifeboat dev_insecure: secrecy of nothing"

// Dev makes an identity without files, for tls.dev_insecure: the same TLS as with files, under a CA whose key is public
// knowledge. It protects nothing, so its users must stay on the loopback interface; an identity of Load does not trust it unless told
// to. Dev panics if n.Check would refuse n.
func Dev(n Name) *Identity {
	id, err := dev(n)
	if err != nil {
		panic(fmt.Sprintf("certs.Dev(%q): %v", n, err))
	}
	return id
}

func dev(n Name) (*Identity, error) {
	if err := n.Check(); err != nil {
		return nil, err
	}
	// Valid in a synctest bubble, which starts in the year 2000, and for as long as anyone may run this.
	from, until := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 12, 31, 0, 0, 0, 0, time.UTC)

	caKey := devKey("ca")
	caDER, err := newCA(from, until, "Lifeboat insecure development CA", caKey)
	if err != nil {
		return nil, err
	}
	ca, err := x509.ParseCertificate(caDER)
	if err != nil {
		return nil, err
	}
	key := devKey(n.String())
	der, err := x509.CreateCertificate(rand.Reader, leafTemplate(n, from, until), ca, key.Public(), caKey)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	i := &Identity{name: n}
	i.held.Store(&held{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, roots})
	return i, nil
}

// devKey derives the same key in every process, so that separate processes trust each other.
func devKey(of string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(devSeed + "\x00" + of))
	return ed25519.NewKeyFromSeed(seed[:])
}
