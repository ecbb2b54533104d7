package attest

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"
)

// instanceIdentity is the part that is used here of EC2's instance identity document.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-identity-documents.html
type instanceIdentity struct {
	AccountID   string    `json:"accountId"`
	InstanceID  string    `json:"instanceId"`
	Region      string    `json:"region"`
	PrivateIP   string    `json:"privateIp"`
	PendingTime time.Time `json:"pendingTime"` // when it was launched, or started again
}

var instanceForm = regexp.MustCompile(`^i-[0-9a-f]{8,32}$`)

// verify checks the answer of /latest/dynamic/instance-identity/rsa2048: a signature that contains the document. Of AWS's three
// signatures it is the only strong one: pkcs7 is DSA over SHA-1, and signature is RSA with 1024 bits.
//
// EC2 takes no nonce, so a thief of a document may use it until max_age is over, or until its machine has joined: the coordinator lets
// one machine join with one key.
func (e EC2) verify(text []byte, names string, now time.Time) (Machine, error) {
	der, err := decode(text)
	if err != nil {
		return Machine{}, err
	}
	message, err := parse(der)
	if err != nil {
		return Machine{}, err
	}
	signers, err := e.signers()
	if err != nil {
		return Machine{}, fmt.Errorf("the coordinator cannot read AWS's certificates: %w", err)
	}
	content, err := signedBy(message, signers)
	if err != nil {
		return Machine{}, err
	}
	var i instanceIdentity
	if err := json.Unmarshal(content, &i); err != nil || !accountForm.MatchString(i.AccountID) || !instanceForm.MatchString(i.InstanceID) || i.PendingTime.IsZero() {
		return Machine{}, errors.New("the document is not EC2's instance identity document")
	}
	if err := errors.Join(among("account", i.AccountID, e.Accounts), among("region", i.Region, e.Regions)); err != nil {
		return Machine{}, err
	}
	m := Machine{ID: "ec2:" + i.AccountID + ":" + i.InstanceID, late: young(i.PendingTime, now, e.MaxAge)}
	if names == namesProven {
		m.names = i.names()
	}
	return m, nil
}

// names are the host names that EC2 gives an instance, with and without the domain.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-naming.html
func (i instanceIdentity) names() []string {
	hosts := []string{i.InstanceID}
	if ip, err := netip.ParseAddr(i.PrivateIP); err == nil && ip.Is4() {
		hosts = append(hosts, "ip-"+strings.ReplaceAll(ip.String(), ".", "-"))
	}
	domain := "." + i.Region + ".compute.internal"
	if i.Region == "us-east-1" {
		domain = ".ec2.internal"
	}
	for _, h := range hosts[:len(hosts):len(hosts)] {
		hosts = append(hosts, h+domain)
	}
	return hosts
}

// signers are AWS's certificates. They are no chain: each signs the documents of a region.
func (e EC2) signers() ([]*x509.Certificate, error) {
	all, err := certificates(e.Certificates)
	if err != nil {
		return nil, fmt.Errorf("join.ec2.certificates: %w", err)
	}
	for _, c := range all {
		if key, ok := c.PublicKey.(*rsa.PublicKey); !ok || key.N.BitLen() < 2048 {
			return nil, fmt.Errorf("join.ec2.certificates: that of %q is not for RSA-2048 signatures: take the one that AWS lists as RSA-2048", c.Subject)
		}
	}
	return all, nil
}
