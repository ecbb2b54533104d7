package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Server is the configuration of a side that is dialled. It requires a certificate of our CA with one of the roles in
// allow. With no role given, a certificate is welcome but not required: the caller then asks PeerName before it shows
// anything that is not for everybody.
func (i *Identity) Server(protos []string, allow ...Role) *tls.Config {
	c := i.base(protos)
	c.ClientCAs = i.roots
	c.ClientAuth = tls.RequireAndVerifyClientCert
	if len(allow) == 0 {
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	// A ticket would let a session outlive the certificate that opened it; handshakes are cheap beside what follows them.
	c.SessionTicketsDisabled = true
	allow = slices.Clone(allow)
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(allow) == 0 && len(cs.PeerCertificates) == 0 {
			return nil
		}
		peer, err := presented(cs)
		if err != nil {
			return err
		}
		if len(allow) > 0 && !slices.Contains(allow, peer.Role) {
			return fmt.Errorf("peer presented %q, want a certificate of role %s", peer, oneOf(allow))
		}
		return nil
	}
	return c
}

// Client is the configuration of a side that dials. It verifies the chain and that the peer is want, or any peer of
// want's role when want.Name is empty. The address that was dialled plays no part.
func (i *Identity) Client(protos []string, want Name) *tls.Config {
	c := i.base(protos)
	c.RootCAs = i.roots
	// Turns off the check of the host name, and with it the library's own walk of the chain, which verify does instead.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		peer, err := presented(cs)
		if err != nil {
			return err
		}
		if err := verifyChain(cs.PeerCertificates, i.roots, x509.ExtKeyUsageServerAuth); err != nil {
			return fmt.Errorf("%w: peer claims to be %q, want %s", err, peer, wanted(want))
		}
		if peer.Role != want.Role || want.Name != "" && peer.Name != want.Name {
			return fmt.Errorf("peer presented %q, want %s", peer, wanted(want))
		}
		return nil
	}
	return c
}

func (i *Identity) base(protos []string) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{i.cert},
		NextProtos:   slices.Clone(protos),
		// Blocks are long: records of full size from the first byte, not after a megabyte.
		DynamicRecordSizingDisabled: true,
	}
}

// PeerName says who is at the other end of a connection made with a configuration of this package, which has verified
// it by the time the handshake is complete.
func PeerName(cs tls.ConnectionState) (Name, error) {
	if !cs.HandshakeComplete {
		return Name{}, errors.New("handshake is not complete: nobody is known yet")
	}
	return presented(cs)
}

// presented is what the peer says it is, verified or not.
func presented(cs tls.ConnectionState) (Name, error) {
	if len(cs.PeerCertificates) == 0 {
		return Name{}, errors.New("peer presented no certificate")
	}
	n, err := nameIn(cs.PeerCertificates[0])
	if err != nil {
		return Name{}, fmt.Errorf("peer presented no name: %w", err)
	}
	return n, nil
}

func wanted(n Name) string {
	if n.Name == "" {
		return "any " + string(n.Role)
	}
	return fmt.Sprintf("%q", n)
}

func oneOf(roles []Role) string {
	words := make([]string, len(roles))
	for i, r := range roles {
		words[i] = string(r)
	}
	return strings.Join(words, " or ")
}
