package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Server is the configuration of the side that is dialled. It requires a certificate of a trusted CA with one of the roles in
// allow. Without roles a certificate is welcome but not required: then the server must ask PeerName before it shows
// anything that is not public.
func (i *Identity) Server(protos []string, allow ...Role) *tls.Config {
	c := i.base(protos)
	// Package tls would check against the present CAs for ever. VerifyConnection checks against those at the time of the handshake.
	c.ClientAuth = tls.RequireAnyClientCert
	if len(allow) == 0 {
		c.ClientAuth = tls.RequestClientCert
	}
	// With a ticket a session could outlive the certificate that opened it; and handshakes are cheap beside what follows them.
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
		if err := verifyChain(cs.PeerCertificates, i.held.Load().roots, x509.ExtKeyUsageClientAuth); err != nil {
			return fmt.Errorf("%w: peer claims to be %q", err, peer)
		}
		if err := i.Trusts(cs); err != nil {
			return err
		}
		if len(allow) > 0 && !slices.Contains(allow, peer.Role) {
			return fmt.Errorf("peer presented %q, want a certificate of role %s", peer, oneOf(allow))
		}
		return nil
	}
	// The server tells clients which CAs it trusts, for clients that have several certificates; Java's show none if the list lacks
	// their CA (RFC 8446, section 4.2.4). So this list too must be that of the time of the handshake.
	terms := c.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := terms.Clone()
		now.ClientCAs = i.held.Load().roots
		return now, nil
	}
	return c
}

// Client is the configuration of the side that dials. It verifies the chain, and that the peer is want, or of want's role if want.Name
// is empty. The dialled address does not matter.
func (i *Identity) Client(protos []string, want Name) *tls.Config {
	c := i.base(protos)
	// This turns off the check of the host name, and with it the library's check of the chain, which verifyServer does instead.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		if err := verifyServer(cs, i.held.Load().roots, want); err != nil {
			return err
		}
		return i.Trusts(cs)
	}
	return c
}

func verifyServer(cs tls.ConnectionState, roots *x509.CertPool, want Name) error {
	peer, err := presented(cs)
	if err != nil {
		return err
	}
	if err := verifyChain(cs.PeerCertificates, roots, x509.ExtKeyUsageServerAuth); err != nil {
		return fmt.Errorf("%w: peer claims to be %q, want %s", err, peer, wanted(want))
	}
	if peer.Role != want.Role || want.Name != "" && peer.Name != want.Name {
		return fmt.Errorf("peer presented %q, want %s", peer, wanted(want))
	}
	return nil
}

// Unverified is the configuration for asking a server for its CA, which a Pin then confirms or not. It checks nothing, so nothing secret may
// be sent over it.
func Unverified(protos []string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: slices.Clone(protos), InsecureSkipVerify: true}
}

// Newcomer is the configuration of a machine without a certificate that dials a peer of role want. It trusts the CAs in ca (PEM).
func Newcomer(ca []byte, protos []string, want Role) (*tls.Config, error) {
	cas, err := parseCerts("the CA", ca)
	if err != nil {
		return nil, err
	}
	c := Unverified(protos)
	c.VerifyConnection = func(cs tls.ConnectionState) error { return verifyServer(cs, pool(cas), Name{Role: want}) }
	return c, nil
}

// Door is the configuration of a server that also lets in clients without a certificate, if proto is all that they offer: they come to
// get a certificate. For all others the usual configuration holds, which must be one of Server.
func (i *Identity) Door(usual *tls.Config, proto string) *tls.Config {
	open := i.base([]string{proto})
	open.SessionTicketsDisabled = true
	c := usual.Clone()
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Equal(hello.SupportedProtos, []string{proto}) {
			return open, nil
		}
		return usual.GetConfigForClient(hello)
	}
	return c
}

func (i *Identity) base(protos []string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &i.held.Load().cert, nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &i.held.Load().cert, nil
		},
		NextProtos: slices.Clone(protos),
		// Blocks are long: use records of full size from the first byte, not only after a megabyte.
		DynamicRecordSizingDisabled: true,
	}
}

// PeerName is the name of the other end of a connection made with a configuration of this package, which has verified
// it by the end of the handshake.
func PeerName(cs tls.ConnectionState) (Name, error) {
	if !cs.HandshakeComplete {
		return Name{}, errors.New("handshake is not complete: nobody is known yet")
	}
	return presented(cs)
}

// presented is the name in the peer's certificate, verified or not.
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
