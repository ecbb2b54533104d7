// Package attest believes clouds, and nobody else, about which machine asks to join a fleet: it checks the signed documents
// that metadata services give to their machines, against the clouds' own certificates and what the settings let in.
//
// It asks no network: certificates and keys come from files, which are read anew for each machine, so that whoever
// replaces them restarts nothing. What it is given comes from strangers, and is bounded before it is looked at. Its errors
// are for the machine's owner: they say what to change, and nothing of this fleet that the owner would have to guess.
package attest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/api"
)

// Machine is who a document is about.
type Machine struct {
	ID string // ec2:ACCOUNT:INSTANCE, gce:PROJECT:ZONE:INSTANCE, azure:SUBSCRIPTION:VM

	names []string // that the document proves; nil: every name will do
	late  error
}

// Late is why the machine may not join for the first time: it runs for too long. Nil: it may. Who joined in time may
// repeat that with the same key for as long as it lives.
func (m Machine) Late() error { return m.late }

// MayBe says whether the machine may be called name. Any name would let one machine take that of another which has not
// come yet.
func (m Machine) MayBe(name string) error {
	if m.names == nil || slices.Contains(m.names, name) {
		return nil
	}
	return fmt.Errorf("the document does not say that %s is called %.130q: set node.name to one of %q, or let the coordinator's join.names be any", m.ID, name, m.names)
}

// Verifier checks documents by its settings.
type Verifier struct {
	settings Settings
	pin      []byte
}

// New returns a verifier for the fleet of the CA with this pin.
func New(s Settings, pin []byte) *Verifier { return &Verifier{settings: s, pin: slices.Clone(pin)} }

// maxDocument is far more than any cloud's document: Azure's, the largest, brings its certificate and has 5 KB.
const maxDocument = 32 << 10

// Verify says which machine a document is of, if that may join. key is the machine's public key (SubjectPublicKeyInfo): the
// documents of Google and of Azure are made for one key, and are nothing in the hands of another.
func (v *Verifier) Verify(d *api.Document, key []byte) (Machine, error) {
	if len(d.Signed) > maxDocument {
		return Machine{}, fmt.Errorf("document of %d bytes: at most %d", len(d.Signed), maxDocument)
	}
	switch s, now := v.settings, time.Now(); {
	case d.Provider == "ec2" && s.EC2.set():
		return s.EC2.verify(d.Signed, s.Names, now)
	case d.Provider == "gce" && s.GCE.set():
		return s.GCE.verify(d.Signed, Audience(v.pin, key), s.Names, now)
	case d.Provider == "azure" && s.Azure.set():
		return s.Azure.verify(d.Signed, Nonce(v.pin, key), s.Names, now)
	}
	return Machine{}, fmt.Errorf("no documents of %.20q are believed here: set join for that cloud in the coordinator's settings, or join with a token", d.Provider)
}

// Audience is whom a machine with this key names to Google: one fleet, and the key. (Google asks for a URI.)
func Audience(pin, key []byte) string {
	sum := sha256.Sum256(key)
	enc := base64.RawURLEncoding
	return "lifeboat:" + enc.EncodeToString(pin) + ":" + enc.EncodeToString(sum[:])
}

// Nonce is what a machine with this key has Azure sign, which takes ten digits. To make a key for somebody else's nonce
// takes some 10^10 tries; a document ends in hours.
// https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#attested-data
func Nonce(pin, key []byte) string {
	sum := sha256.Sum256([]byte(Audience(pin, key)))
	return fmt.Sprintf("%010d", binary.BigEndian.Uint64(sum[:])%1e10)
}

// skew is how far the clocks of a cloud and of a coordinator may be apart.
const skew = 2 * time.Minute

// young says why a machine that was launched then may not join for the first time.
func young(launched, now time.Time, most time.Duration) error {
	switch age := now.Sub(launched); {
	case age < -skew:
		return fmt.Errorf("the machine says that it was launched at %s, which is to come: see to the coordinator's clock", launched.UTC().Format(time.RFC3339))
	case age > most:
		return fmt.Errorf("the machine was launched %s ago and joins for the first time, which join's max_age allows for %s: restart it, or join with a token",
			age.Round(time.Minute), most)
	}
	return nil
}

// among says whether a policy lets a value in. An empty policy lets all in.
func among(what, value string, allowed []string) error {
	if len(allowed) == 0 || slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("machines of %s %.64q may not join: it is not in the coordinator's settings", what, value)
}
