package certs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"
)

// ErrRevoked is why a certificate is refused that an operator has taken back.
var ErrRevoked = errors.New("certificate was revoked")

// Distrust has certificates refused from then on that were made for a name before the time that revoked gives for it; zero: none were
// revoked. Whoever gets the name afterwards has a newer one.
func (i *Identity) Distrust(revoked func(Name) time.Time) { i.revoked.Store(&revoked) }

// Trusts says whether the certificate at the other end of a connection was revoked, perhaps after the handshake in which it was good.
func (i *Identity) Trusts(cs tls.ConnectionState) error {
	revoked := i.revoked.Load()
	if revoked == nil || len(cs.PeerCertificates) == 0 {
		return nil
	}
	peer, err := presented(cs)
	if err != nil {
		return err
	}
	// Our certificates begin an hour before they are made.
	if at := (*revoked)(peer); cs.PeerCertificates[0].NotBefore.Add(backdate).Before(at) {
		return fmt.Errorf("%w at %s: %s needs a new one", ErrRevoked, at.UTC().Format(time.RFC3339), peer)
	}
	return nil
}
