// Package attest proves which machine asks to join a fleet. It checks the signed documents that clouds' metadata services give to their
// machines, against the clouds' own certificates, and then against the accounts, projects and subscriptions that the settings let in.
//
// It uses no network: certificates and keys come from files, which are read anew for each machine, so that replacing them needs no
// restart. Documents come from strangers, and are bounded before they are parsed. Errors are for the machine's owner: they say what to
// change, and nothing of this fleet that an outsider does not know.
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

// Machine is the machine that a document is about.
type Machine struct {
	ID string // ec2:ACCOUNT:INSTANCE, gce:PROJECT:ZONE:INSTANCE, azure:SUBSCRIPTION:VM

	names []string // the names that the document proves; nil: any name will do
	late  error
}

// Late says that the machine was launched too long ago to join for the first time; nil: it was not. A machine that joined in time may join
// again with the same key for as long as it lives.
func (m Machine) Late() error { return m.late }

// MayBe says why the machine may not be called name; nil: it may. If any name were allowed, a machine could take the name of another that
// has not joined yet.
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

// Verify returns the machine that a document is of, or why that may not join. key is the machine's public key (SubjectPublicKeyInfo): the
// documents of Google and of Azure are made for one key, and are of no use with another.
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

// Audience is the audience for which a machine asks Google for a token: it names the fleet and the machine's key. (Google wants a URI.)
func Audience(pin, key []byte) string {
	sum := sha256.Sum256(key)
	enc := base64.RawURLEncoding
	return "lifeboat:" + enc.EncodeToString(pin) + ":" + enc.EncodeToString(sum[:])
}

// Nonce is the nonce that a machine has Azure sign: it stands for the fleet and the machine's key. Azure takes ten digits, so to find a key
// for another machine's nonce takes some 10^10 tries; a document expires within hours.
// https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#attested-data
func Nonce(pin, key []byte) string {
	sum := sha256.Sum256([]byte(Audience(pin, key)))
	return fmt.Sprintf("%010d", binary.BigEndian.Uint64(sum[:])%1e10)
}

// skew is how far apart the clocks of a cloud and of a coordinator may be.
const skew = 2 * time.Minute

// young says why a machine may not join for the first time: it was launched longer than most ago, or after now.
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

// among refuses a value that is not in a list of the settings. An empty list lets all values in.
func among(what, value string, allowed []string) error {
	if len(allowed) == 0 || slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("machines of %s %.64q may not join: it is not in the coordinator's settings", what, value)
}
