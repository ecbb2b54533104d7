package certs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"
)

// ErrRevoked refuses a certificate that an operator has revoked.
var ErrRevoked = errors.New("certificate was revoked")

// Distrust makes i refuse certificates by name from now on: revoked gives the instant before which a certificate of the name must have been
// made to be refused; zero: none is refused. A certificate that is made for the name later is good.
func (i *Identity) Distrust(revoked func(Name) time.Time) { i.revoked.Store(&revoked) }

// Trusts fails if the certificate at the other end of a connection is revoked, perhaps since the handshake.
func (i *Identity) Trusts(cs tls.ConnectionState) error {
	revoked := i.revoked.Load()
	if revoked == nil || len(cs.PeerCertificates) == 0 {
		return nil
	}
	peer, err := presented(cs)
	if err != nil {
		return err
	}
	// A certificate was made backdate after its NotBefore.
	if at := (*revoked)(peer); cs.PeerCertificates[0].NotBefore.Add(backdate).Before(at) {
		return fmt.Errorf("%w at %s: %s needs a new one", ErrRevoked, at.UTC().Format(time.RFC3339), peer)
	}
	return nil
}
