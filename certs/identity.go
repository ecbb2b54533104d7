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

// Identity is a certificate with its key, and the CAs to trust: all that one side of a connection needs to prove its name and to
// check the other's. Its name never changes; Reload takes up a renewed certificate.
type Identity struct {
	name  Name
	files files // empty: it was not read from files
	held  atomic.Pointer[held]

	revoked atomic.Pointer[func(Name) time.Time]
}

// files are the files that an identity was read from.
type files struct{ ca, cert, key string }

// held is the certificate that an identity shows, and the CAs that it trusts, until the next Reload.
type held struct {
	cert  tls.Certificate
	roots *x509.CertPool
}

// Name is who this identity says it is.
func (i *Identity) Name() Name { return i.name }

// Expires is when the certificate expires. Connections made before then stay open.
func (i *Identity) Expires() time.Time { return i.held.Load().cert.Leaf.NotAfter }

// Begins is when the certificate became valid.
func (i *Identity) Begins() time.Time { return i.held.Load().cert.Leaf.NotBefore }

// Leaf is the certificate itself.
func (i *Identity) Leaf() *x509.Certificate { return i.held.Load().cert.Leaf }

// Reload reads the files anew, for all later handshakes; open connections stay. If the files are not in order, or of another name, it
// fails and the former certificate stays in use.
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

// Load reads an identity, and refuses one that its peers would refuse: a key that does not fit the certificate, a certificate that is
// not valid now, of another CA, or without a role. caFile may have several CAs, so that one can follow another. certFile may have
// intermediates after the certificate itself.
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
	for _, ca := range cas {
		if !ca.IsCA {
			return nil, Name{}, fmt.Errorf("read CA: %s: certificate %q is not of a CA", from.ca, ca.Subject.CommonName)
		}
	}
	roots := pool(cas)
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
	// Some users' own CAs issue certificates for clients only, or for servers only. Here each side needs one for both.
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		switch err := verifyChain(chain, roots, use); {
		case errors.Is(err, ErrExpired):
			return nil, Name{}, fmt.Errorf("read certificate: %s (%s): %w (%s)", from.cert, name, err, IssueCommand(from.ca, name))
		case errors.Is(err, errEarly):
			return nil, Name{}, fmt.Errorf("read certificate: %s (%s): %w", from.cert, name, err)
		case err != nil:
			return nil, Name{}, fmt.Errorf("read certificate: %s (%s): %w: see %s", from.cert, name, err, from.ca)
		}
	}
	return &held{cert, roots}, name, nil
}

// LoadDir reads the operator's identity from a directory that InitCA made, or a copy of its ca.pem and operator files.
func LoadDir(dir string) (*Identity, error) {
	return Load(filepath.Join(dir, caCertFile), filepath.Join(dir, "operator.pem"), filepath.Join(dir, "operator.key"))
}

func pool(cas []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, ca := range cas {
		p.AddCert(ca)
	}
	return p
}

// verifyChain checks that chain[0] is valid now and leads to roots. Now is time.Now, so that it also works by the clock of a synctest
// bubble.
func verifyChain(chain []*x509.Certificate, roots *x509.CertPool, use x509.ExtKeyUsage) error {
	now, leaf := time.Now(), chain[0]
	switch {
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("%w before %s, now it is %s: check the clock", errEarly,
			leaf.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case now.After(leaf.NotAfter):
		return fmt.Errorf("%w at %s, now it is %s: issue a new one", ErrExpired,
			leaf.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: pool(chain[1:]), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use},
	})
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return ErrNotOurs
	}
	return err
}

// ErrNotOurs refuses a certificate that leads to none of the trusted CAs.
var ErrNotOurs = errors.New("certificate is not signed by our CA")

// ErrExpired refuses a certificate that is no longer valid.
var ErrExpired = errors.New("certificate expired")

// errEarly refuses one that is not valid yet: of its holder's clock or its maker's one is wrong, and the CA's file explains nothing.
var errEarly = errors.New("certificate is not valid")

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

// private refuses a key file that others may read or write, or its group may write. The group may read a daemon's key (root:lifeboat
// 0640).
func private(file string, mode os.FileMode) error {
	if mode.Perm()&0o027 != 0 {
		return fmt.Errorf("%s has mode %04o, others may use it: chmod 600 %[1]s", file, mode.Perm())
	}
	return nil
}

// ReadCertificates reads the certificates of a PEM file. It fails if there is none.
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
	// pem.Decode skips blocks that it cannot read: of two CAs one would silently not be trusted.
	if begun := bytes.Count(data, []byte("-----BEGIN CERTIFICATE-----")); begun != len(out) {
		return nil, fmt.Errorf("%s: %d certificates begin in it, %d can be read: was it cut short, or is the end of a line missing between two?", file, begun, len(out))
	}
	return out, nil
}

// maxFile is far more than any chain of certificates, and little enough for memory if the path is of a wrong file.
const maxFile = 1 << 20

// readFile reads a small file, and the mode of the file that it read, even if another takes its place meanwhile.
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

// signer is the key of a certificate, which package tls has as an opaque value.
func signer(c tls.Certificate) (crypto.Signer, error) {
	s, ok := c.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("key of type %T cannot sign", c.PrivateKey)
	}
	return s, nil
}
