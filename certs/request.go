package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// NewKey makes a key and writes it to file, or reads the key that is there. So a request that was cut short is repeated with
// the same key, and a renewed certificate is for the same key: the two files always fit together.
func NewKey(file string) (crypto.Signer, error) {
	switch key, err := readKey(file); {
	case err == nil:
		return key, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read key: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	if err := writeKey(file, key, os.Link); err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

func readKey(file string) (crypto.Signer, error) {
	data, mode, err := readFile(file)
	if err != nil {
		return nil, err
	}
	if err := private(file, mode); err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s: no key in PEM form in it", file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: a key of type %T cannot sign", file, parsed)
	}
	return key, nil
}

// Request is a certificate request in DER (RFC 2986): a public key, and a signature that proves that the sender has the private key. It
// has no name; the authority finds out which machine sends it.
func Request(key crypto.Signer) ([]byte, error) {
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
}

// Write writes a certificate and the CAs to trust, both as PEM, to the files of Load. It changes neither file if Load would refuse the
// certificate now: an authority whose clock is far ahead makes certificates that begin later, and the one that is there is good until then.
func Write(caFile, certFile string, ca, cert []byte) error {
	cas, err := parseCerts(caFile, ca)
	if err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	chain, err := parseCerts(certFile, cert)
	if err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	if err := verifyChain(chain, pool(cas), x509.ExtKeyUsageServerAuth); err != nil {
		return fmt.Errorf("write certificate: the new one is not put into %s: %w", certFile, err)
	}
	for _, f := range []struct {
		path string
		data []byte
	}{{caFile, ca}, {certFile, cert}} {
		if old, err := os.ReadFile(f.path); err == nil && slices.Equal(old, f.data) {
			continue
		}
		if err := writeFile(f.path, f.data, 0o644, os.Rename); err != nil {
			return fmt.Errorf("write certificate: %w", err)
		}
	}
	return nil
}

// Authority signs requests.
type Authority struct {
	ca   *x509.Certificate
	key  crypto.Signer
	pem  []byte // all certificates of file
	file string
}

// LoadAuthority reads a CA with its key. caFile may have other CAs after it: the one before it or the one to follow.
func LoadAuthority(caFile, keyFile string) (*Authority, error) {
	pair, err := readPair(caFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("read CA: %w", err)
	}
	key, err := signer(pair)
	if err != nil {
		return nil, fmt.Errorf("read CA: %w", err)
	}
	a := &Authority{ca: pair.Leaf, key: key, file: caFile}
	for _, der := range pair.Certificate {
		a.pem = append(a.pem, certPEM(der)...)
	}
	return a, a.inTime(time.Now())
}

func (a *Authority) inTime(now time.Time) error {
	if !a.ca.IsCA || now.Before(a.ca.NotBefore) || now.After(a.ca.NotAfter) {
		return fmt.Errorf("%s is no CA in its time (valid from %s to %s)", a.file,
			a.ca.NotBefore.UTC().Format(time.RFC3339), a.ca.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// PEM is the CAs that holders of the authority's certificates are to trust: the authority itself, and the other CAs of its file.
func (a *Authority) PEM() []byte { return a.pem }

// Pin is the pin by which a Token recognises the authority.
func (a *Authority) Pin() Pin { return pinOf(a.ca) }

// maxRequest is far more than a request of ours, which has 150 bytes or so.
const maxRequest = 8 << 10

// Sign makes a certificate, as PEM, for name n and the key in a request. It ignores all else in the request. The certificate expires
// with the CA at the latest. ips and dns are for clients that check host names.
func (a *Authority) Sign(request []byte, n Name, life time.Duration, ips []net.IP, dns []string) ([]byte, error) {
	if err := n.Check(); err != nil {
		return nil, err
	}
	if len(request) > maxRequest {
		return nil, fmt.Errorf("request for a certificate of %d bytes: at most %d", len(request), maxRequest)
	}
	asked, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, fmt.Errorf("request for a certificate: %w", err)
	}
	if err := asked.CheckSignature(); err != nil {
		return nil, fmt.Errorf("request for a certificate: whoever sends it does not have the key: %w", err)
	}
	if key, ok := asked.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("request for a certificate: a key of type %T: want ECDSA on P-256", asked.PublicKey)
	}
	der, err := a.sign(asked.PublicKey, n, life, ips, dns)
	if err != nil {
		return nil, err
	}
	return certPEM(der), nil
}

func (a *Authority) sign(key crypto.PublicKey, n Name, life time.Duration, ips []net.IP, dns []string) ([]byte, error) {
	now := time.Now()
	if err := a.inTime(now); err != nil {
		return nil, err
	}
	until := now.Add(life)
	if until.After(a.ca.NotAfter) {
		until = a.ca.NotAfter
	}
	template := leafTemplate(n, now.Add(-backdate), until)
	template.IPAddresses, template.DNSNames = ips, dns
	der, err := x509.CreateCertificate(rand.Reader, template, a.ca, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate for %q: %w", n, err)
	}
	return der, nil
}
