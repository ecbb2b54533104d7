package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

const (
	caCertFile = "ca.pem"
	caKeyFile  = "ca.key"

	caLife   = 10 * 365 * 24 * time.Hour
	leafLife = 365 * 24 * time.Hour
	// backdate is how long before its making a certificate begins, so that a machine whose clock is behind can use it at once.
	backdate = time.Hour
)

// InitCA makes a new authority in dir, and an operator's certificate beside it. It never replaces an authority, for all
// certificates of the fleet depend on it.
func InitCA(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	for _, file := range []string{caCertFile, caKeyFile} {
		if _, err := os.Lstat(filepath.Join(dir, file)); err == nil {
			return fmt.Errorf("make CA: %s exists: choose another directory, or move the old CA away", filepath.Join(dir, file))
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	now := time.Now()
	der, err := newCA(now.Add(-backdate), now.Add(caLife), "Lifeboat CA", key)
	if err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	// The certificate is written last: a directory with ca.pem has the key too.
	if err := writeKey(filepath.Join(dir, caKeyFile), key, os.Link); err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	if err := writeCert(filepath.Join(dir, caCertFile), der, os.Link); err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	_, _, err = Issue(dir, Name{RoleOperator, "operator"}, nil, nil)
	return err
}

// Issue makes a certificate and a new key for n, signed by the authority in dir, as dir/NAME.pem and dir/NAME.key.
// Issuing for the same name again renews the certificate. ips and dns are for clients that check host names, such as curl; Lifeboat's own
// connections do not.
func Issue(dir string, n Name, ips []net.IP, dns []string) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, n.Name+".pem"), filepath.Join(dir, n.Name+".key")
	if err := issue(dir, n, ips, dns, certFile, keyFile); err != nil {
		return "", "", fmt.Errorf("issue certificate for %q: %w", n, err)
	}
	return certFile, keyFile, nil
}

// IssueCommand is the command with which whoever has the authority issues a certificate to n. It names the directory of caFile if the
// authority's key lies there too, so that it does as printed; elsewhere nobody but the key's keeper knows the DIR.
func IssueCommand(caFile string, n Name) string {
	dir := filepath.Dir(caFile)
	if _, err := os.Stat(filepath.Join(dir, caKeyFile)); err != nil || filepath.Base(caFile) != caCertFile {
		dir = "DIR"
	}
	return fmt.Sprintf("lifeboat tls issue --dir %s --%s %s", dir, n.Role, n.Name)
}

func issue(dir string, n Name, ips []net.IP, dns []string, certFile, keyFile string) error {
	if err := n.Check(); err != nil {
		return err
	}
	if n.Name == "ca" || n.Name == "operator" && n.Role != RoleOperator {
		return fmt.Errorf("the name %q belongs to files of the CA: choose another", n.Name)
	}
	if old, err := ReadCertificates(certFile); err == nil {
		if was, err := nameIn(old[0]); err != nil || was != n {
			return fmt.Errorf("%s is the certificate of %q: choose another name or directory", certFile, was)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at the certificate to renew: %w", err)
	}
	ca, err := LoadAuthority(filepath.Join(dir, caCertFile), filepath.Join(dir, caKeyFile))
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := ca.sign(key.Public(), n, leafLife, ips, dns)
	if err != nil {
		return err
	}
	if err := writeKey(keyFile, key, os.Rename); err != nil {
		return err
	}
	return writeCert(certFile, der, os.Rename)
}

func newCA(from, until time.Time, name string, key crypto.Signer) ([]byte, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             from,
		NotAfter:              until,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true, // signs certificates, not further authorities
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	return x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
}

func leafTemplate(n Name, from, until time.Time) *x509.Certificate {
	subject := pkix.Name{OrganizationalUnit: []string{string(n.Role)}}
	if len(n.Name) <= 64 { // ub-common-name of RFC 5280, appendix A.1; the URI is what counts
		subject.CommonName = n.Name
	}
	return &x509.Certificate{
		Subject:               subject,
		NotBefore:             from,
		NotAfter:              until,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:                  []*url.URL{n.uri()},
	}
}

func writeKey(file string, key crypto.Signer, put func(from, to string) error) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writeFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600, put)
}

func writeCert(file string, der []byte, put func(from, to string) error) error {
	return writeFile(file, certPEM(der), 0o644, put)
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// writeFile puts data into place whole and durable. put is os.Rename, which replaces, or os.Link, which refuses to.
func writeFile(file string, data []byte, mode os.FileMode, put func(from, to string) error) error {
	dir := filepath.Dir(file)
	f, err := os.CreateTemp(dir, ".new-*") // mode 0600 from the start
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // already gone when put was a rename
	defer f.Close()
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := put(f.Name(), file); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
