// Package certs proves identities: it makes and reads certificates, and makes every tls.Config that Lifeboat uses.
//
// A certificate has exactly one role and name in a URI, such as lifeboat://node/host-a. Each side of a connection verifies the other's chain
// to the fleet's CA and that URI, never a host name: a node may be dialled by any address that leads to it. What a caller may do
// follows from its role alone; the packages that serve decide which role may do what.
//
// A machine that is new to the fleet makes a key and a certificate request (Request), and a coordinator with the CA's key signs it
// (Authority). With a Token the machine recognises the fleet's CA before it sends anything, and the fleet the machine.
//
// The package keeps no secrets of its own, chooses no names, keeps no list of revoked certificates, and looks at no address. An Identity
// may be used by any number of goroutines.
package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Role is what the holder of a certificate is to the fleet.
type Role string

const (
	RoleNode        Role = "node"        // an agent: speaks for itself, reads blocks, offers room
	RoleCoordinator Role = "coordinator" // knows the fleet
	RoleOperator    Role = "operator"    // a person or a script that may change things
	RoleApp         Role = "app"         // an application that owns shuffles and reads blocks
)

// Name is one identity: a role, and a name that is unique among those of that role.
type Name struct {
	Role Role
	Name string
}

// String is the name as people read it: "node host-a".
func (n Name) String() string { return string(n.Role) + " " + n.Name }

// maxName keeps NAME.pem well inside the 255 bytes of a file name, and a table's column readable.
const maxName = 128

// Check says why n cannot be put into a certificate, or returns nil. A name becomes a file's name and a part of a URI,
// so it is made of letters, digits, '.', '_' and '-', and starts with a letter or a digit.
func (n Name) Check() error {
	switch n.Role {
	case RoleNode, RoleCoordinator, RoleOperator, RoleApp:
	default:
		return fmt.Errorf("role must be %s, %s, %s or %s, is %q", RoleNode, RoleCoordinator, RoleOperator, RoleApp, n.Role)
	}
	switch {
	case n.Name == "":
		return errors.New("name must not be empty")
	case len(n.Name) > maxName:
		return fmt.Errorf("name must have at most %d bytes, has %d", maxName, len(n.Name))
	}
	for i := range len(n.Name) {
		c := n.Name[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (i == 0 || !strings.ContainsRune("._-", rune(c))) {
			return errors.New("name must be of letters, digits, '.', '_' and '-', a letter or a digit first")
		}
	}
	return nil
}

const scheme = "lifeboat"

func (n Name) uri() *url.URL {
	return &url.URL{Scheme: scheme, Host: string(n.Role), Path: "/" + n.Name}
}

// NameOf is the name in a certificate file, whether or not the certificate is valid.
func NameOf(certFile string) (Name, error) {
	chain, err := ReadCertificates(certFile)
	if err != nil {
		return Name{}, err
	}
	return nameIn(chain[0])
}

// nameIn reads the one role name of a certificate. URIs of other schemes (SPIFFE, say) may stand beside it.
func nameIn(cert *x509.Certificate) (Name, error) {
	var found []*url.URL
	for _, u := range cert.URIs {
		if u.Scheme == scheme {
			found = append(found, u)
		}
	}
	switch len(found) {
	case 1:
	case 0:
		return Name{}, errors.New("certificate has no role: want one URI such as lifeboat://node/host-a")
	default:
		return Name{}, fmt.Errorf("certificate has %d roles (%s, %s, ...): want exactly one", len(found), found[0], found[1])
	}
	n := Name{Role: Role(found[0].Host), Name: strings.TrimPrefix(found[0].Path, "/")}
	if err := n.Check(); err != nil {
		return Name{}, fmt.Errorf("certificate role %q: %w", found[0], err)
	}
	// The comparison refuses all that a URI may also carry: a port, a user, a query, a fragment, odd escapes.
	if n.uri().String() != found[0].String() {
		return Name{}, fmt.Errorf("certificate role %q: want it spelled %q", found[0], n.uri())
	}
	return n, nil
}
