package certs

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// Identity is a certificate with its key and the CA that it trusts: all that one side needs to prove who it is and to
// check the other. Its name never changes; Reload takes up a certificate that was renewed.
type Identity struct {
	name  Name
	files files // empty: it came from none
	held  atomic.Pointer[held]

	revoked atomic.Pointer[func(Name) time.Time]
}

// files are where an identity was read.
type files struct{ ca, cert, key string }

// held is what an identity shows and trusts at one time.
type held struct {
	cert  tls.Certificate
	roots *x509.CertPool
}

// Name is who this identity says it is.
func (i *Identity) Name() Name { return i.name }

// Expires is when the certificate ends. Connections made before then live on.
func (i *Identity) Expires() time.Time { return i.held.Load().cert.Leaf.NotAfter }

// Begins is when the certificate's time began.
func (i *Identity) Begins() time.Time { return i.held.Load().cert.Leaf.NotBefore }

// Leaf is the certificate itself.
func (i *Identity) Leaf() *x509.Certificate { return i.held.Load().cert.Leaf }

// Reload reads the files anew. Handshakes from then on use what they say; connections that are open stay. If they are
// not in order, or of another name, what was read before stays in use.
func (i *Identity) Reload() error {
	if i.files == (files{}) {
		return nil
	}
	h, name, err := read(i.files)
	if err != nil {
		return err
	}
	if name != i.name {
		return fmt.Errorf("read certificate: %s is of %q now, and this process is %q: restart it to make it another", i.files.cert, name, i.name)
	}
	i.held.Store(h)
	return nil
}

// Load reads an identity and refuses one that its peers would refuse: a key of another certificate, a certificate out of
// its time or of another CA, or one without a role. caFile may hold several CAs, so that one can follow another.
// certFile may hold intermediates after the certificate itself.
func Load(caFile, certFile, keyFile string) (*Identity, error) {
	from := files{caFile, certFile, keyFile}
	h, name, err := read(from)
	if err != nil {
		return nil, err
	}
	i := &Identity{name: name, files: from}
	i.held.Store(h)
	return i, nil
}

func read(from files) (*held, Name, error) {
	cas, err := ReadCertificates(from.ca)
	if err != nil {
		return nil, Name{}, fmt.Errorf("read CA: %w", err)
	}
	roots := x509.NewCertPool()
	for _, ca := range cas {
		if !ca.IsCA {
			return nil, Name{}, fmt.Errorf("read CA: %s: certificate %q is not of a CA", from.ca, ca.Subject.CommonName)
		}
		roots.AddCert(ca)
	}
	cert, err := readPair(from.cert, from.key)
	if err != nil {
		return nil, Name{}, err
	}
	name, err := nameIn(cert.Leaf)
	if err != nil {
		return nil, Name{}, fmt.Errorf("read certificate: %s: %w", from.cert, err)
	}
	chain := []*x509.Certificate{cert.Leaf}
	for _, der := range cert.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, Name{}, fmt.Errorf("read certificate: %s: %w", from.cert, err)
		}
		chain = append(chain, c)
	}
	// Some BYO authorities issue for one direction only; both sides of our connections prove themselves.
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if err := verifyChain(chain, roots, use); err != nil {
			return nil, Name{}, fmt.Errorf("read certificate: %s (%s): %w: see %s", from.cert, name, err, from.ca)
		}
	}
	return &held{cert, roots}, name, nil
}

// LoadDir reads the operator's identity from a directory that InitCA made, or a copy of its ca.pem and operator files.
func LoadDir(dir string) (*Identity, error) {
	return Load(filepath.Join(dir, caCertFile), filepath.Join(dir, "operator.pem"), filepath.Join(dir, "operator.key"))
}

// verifyChain checks that chain[0] is in its time and leads to roots. The clock is time.Now, so that a test's bubble
// carries its own.
func verifyChain(chain []*x509.Certificate, roots *x509.CertPool, use x509.ExtKeyUsage) error {
	now, leaf := time.Now(), chain[0]
	switch {
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("certificate is not valid before %s, now it is %s: check the clock",
			leaf.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case now.After(leaf.NotAfter):
		return fmt.Errorf("%w at %s, now it is %s: issue a new one", ErrExpired,
			leaf.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use},
	})
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return ErrNotOurs
	}
	return err
}

// ErrNotOurs is why a certificate is refused that leads to none of the CAs that are believed.
var ErrNotOurs = errors.New("certificate is not signed by our CA")

// ErrExpired is why Load refuses a certificate that was good once.
var ErrExpired = errors.New("certificate expired")

// readPair reads a certificate and its key.
func readPair(certFile, keyFile string) (tls.Certificate, error) {
	certPEM, _, err := readFile(certFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read certificate: %w", err)
	}
	if _, err := parseCerts(certFile, certPEM); err != nil {
		return tls.Certificate{}, fmt.Errorf("read certificate: %w", err)
	}
	keyPEM, mode, err := readFile(keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read key: %w", err)
	}
	if err := private(keyFile, mode); err != nil {
		return tls.Certificate{}, fmt.Errorf("read key: %w", err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("use key %s with certificate %s: %w", keyFile, certFile, err)
	}
	return cert, nil
}

// private refuses a key that others may use. A daemon's may be read by its own group (root:lifeboat 0640); whoever may
// write it may as well replace it.
func private(file string, mode os.FileMode) error {
	if mode.Perm()&0o027 != 0 {
		return fmt.Errorf("%s has mode %04o, others may use it: chmod 600 %[1]s", file, mode.Perm())
	}
	return nil
}

// ReadCertificates reads the certificates of a PEM file, of which there is one at least.
func ReadCertificates(file string) ([]*x509.Certificate, error) {
	data, _, err := readFile(file)
	if err != nil {
		return nil, err
	}
	return parseCerts(file, data)
}

func parseCerts(file string, data []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no certificate in PEM form in it", file)
	}
	// What cannot be read is passed over by pem.Decode: of two CAs, one would not be believed, and nobody would say so.
	if begun := bytes.Count(data, []byte("-----BEGIN CERTIFICATE-----")); begun != len(out) {
		return nil, fmt.Errorf("%s: %d certificates begin in it, %d can be read: was it cut short, or is the end of a line missing between two?", file, begun, len(out))
	}
	return out, nil
}

// maxFile is far more than any chain of certificates, and little enough to hold when the path is a mistake.
const maxFile = 1 << 20

// readFile reads a small file, with the mode of what was read rather than of what lies there by then.
func readFile(file string) ([]byte, os.FileMode, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, 0, err
	}
	if len(data) > maxFile {
		return nil, 0, fmt.Errorf("%s: more than %d bytes: not a certificate or a key", file, maxFile)
	}
	return bytes.TrimSpace(data), info.Mode(), nil
}

// signer is the key of a CA, which tls keeps as an opaque value.
func signer(c tls.Certificate) (crypto.Signer, error) {
	s, ok := c.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("key of type %T cannot sign", c.PrivateKey)
	}
	return s, nil
}
