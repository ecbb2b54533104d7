package attest

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// attested is the part that is used here of Azure's attested document.
// https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#attested-data
type attested struct {
	Nonce     string `json:"nonce"`
	VMID      string `json:"vmId"`
	SubID     string `json:"subscriptionId"`
	TimeStamp struct {
		CreatedOn string `json:"createdOn"`
		ExpiresOn string `json:"expiresOn"`
	} `json:"timeStamp"`
}

// azureTime is Azure's format of an instant: 11/20/18 22:08:24 -0000.
const azureTime = "01/02/06 15:04:05 -0700"

// azureDomains are the names in the signing certificates of the public cloud, the US government's, and China's.
var azureDomains = []string{"metadata.azure.com", "metadata.azure.us", "metadata.azure.cn"}

// verify checks an attested document: a JSON object with a signed message that includes the service's certificate. The document
// says neither when the machine was made nor what it is called.
func (a Azure) verify(text []byte, nonce, names string, now time.Time) (Machine, error) {
	var wrapped struct {
		Encoding  string `json:"encoding"`
		Signature string `json:"signature"`
	}
	if err := json.Unmarshal(text, &wrapped); err != nil || wrapped.Encoding != "pkcs7" {
		return Machine{}, errors.New("the document is not one of Azure's attested documents")
	}
	der, err := decode([]byte(wrapped.Signature))
	if err != nil {
		return Machine{}, err
	}
	message, err := parse(der)
	if err != nil {
		return Machine{}, err
	}
	trusted, err := a.chain()
	if err != nil {
		return Machine{}, fmt.Errorf("the coordinator cannot read Azure's certificates: %w", err)
	}
	signer := message.GetOnlySigner()
	if signer == nil {
		return Machine{}, errNotSigned
	}
	if err := trusted.check(signer, now); err != nil {
		return Machine{}, err
	}
	content, err := signedBy(message, []*x509.Certificate{signer})
	if err != nil {
		return Machine{}, err
	}
	var says attested
	if err := json.Unmarshal(content, &says); err != nil || says.VMID == "" || says.SubID == "" {
		return Machine{}, errors.New("the document does not say which machine it is of")
	}
	vm, subscription := strings.ToLower(says.VMID), strings.ToLower(says.SubID)
	if !subscriptionForm.MatchString(vm) { // both are GUIDs
		return Machine{}, errors.New("the document does not say which machine it is of")
	}
	if says.Nonce != nonce {
		return Machine{}, errors.New("the document was made for another fleet, or for another key than that of the request")
	}
	until, err := time.Parse(azureTime, says.TimeStamp.ExpiresOn)
	if err != nil {
		return Machine{}, errors.New("the document does not say when it ends")
	}
	if from, err := time.Parse(azureTime, says.TimeStamp.CreatedOn); err != nil || now.Before(from.Add(-skew)) || now.After(until.Add(skew)) {
		return Machine{}, errors.New("the document is out of its time: see to the clocks of machine and coordinator")
	}
	if err := among("subscription", subscription, a.Subscriptions); err != nil {
		return Machine{}, err
	}
	m := Machine{ID: "azure:" + subscription + ":" + vm}
	if names == namesProven {
		m.names = []string{vm}
	}
	return m, nil
}

// azureChain are the CAs that the metadata service's certificate must lead to.
type azureChain struct{ roots, between *x509.CertPool }

func (a Azure) chain() (azureChain, error) {
	all, err := certificates(a.Certificates)
	if err != nil {
		return azureChain{}, fmt.Errorf("join.azure.certificates: %w", err)
	}
	c, roots := azureChain{x509.NewCertPool(), x509.NewCertPool()}, 0
	for _, one := range all {
		switch {
		case !one.IsCA:
			return azureChain{}, fmt.Errorf("join.azure.certificates: that of %q is not of a CA", one.Subject)
		case bytes.Equal(one.RawSubject, one.RawIssuer):
			c.roots.AddCert(one)
			roots++
		default:
			c.between.AddCert(one)
		}
	}
	if roots == 0 {
		return azureChain{}, errors.New("join.azure.certificates: there is no root among them: add that of the issuer")
	}
	return c, nil
}

func (c azureChain) check(signer *x509.Certificate, now time.Time) error {
	if !isAzure(signer) {
		return fmt.Errorf("the document is signed by %.100q, which is not Azure's metadata service", signer.Subject)
	}
	_, err := signer.Verify(x509.VerifyOptions{
		Roots: c.roots, Intermediates: c.between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fmt.Errorf("the document's certificate does not lead to one of join.azure.certificates: the coordinator may lack what issued it, %.100q", signer.Issuer)
	}
	return nil
}

func isAzure(c *x509.Certificate) bool {
	for _, name := range append([]string{c.Subject.CommonName}, c.DNSNames...) {
		for _, domain := range azureDomains {
			if name = strings.ToLower(name); name == domain || strings.HasSuffix(name, "."+domain) {
				return true
			}
		}
	}
	return false
}
