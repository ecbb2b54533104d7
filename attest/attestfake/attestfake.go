// Package attestfake makes documents as clouds make them for their machines, signed by authorities of its own, for tests.
package attestfake

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/smallstep/pkcs7"
)

// authority is a key with its certificate.
type authority struct {
	key  *rsa.PrivateKey
	cert *x509.Certificate
}

// newAuthority makes one, signed by another or by itself.
func newAuthority(name string, by *authority, change func(*x509.Certificate)) *authority {
	key := must(rsa.GenerateKey(rand.Reader, 2048))
	template := &x509.Certificate{
		SerialNumber: must(rand.Int(rand.Reader, big.NewInt(1<<62))), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour),
	}
	change(template)
	if by == nil {
		by = &authority{key: key, cert: template}
	}
	der := must(x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key))
	return &authority{key: key, cert: must(x509.ParseCertificate(der))}
}

func isCA(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// EC2 signs instance identity documents for one region.
type EC2 struct{ authority *authority }

// NewEC2 makes a key, and a certificate that signs itself, as AWS's do.
func NewEC2() *EC2 { return &EC2{newAuthority("", nil, func(*x509.Certificate) {})} }

// Certificate is what AWS would publish, PEM.
func (e *EC2) Certificate() []byte { return e.authority.pem() }

// Instance is what a document says.
type Instance struct {
	Account, Region, ID, PrivateIP string
	Pending                        time.Time
}

// Text is the document itself, in the shape that AWS documents.
func (i Instance) Text() string {
	return `{
  "accountId" : "` + i.Account + `",
  "architecture" : "x86_64",
  "availabilityZone" : "` + i.Region + `b",
  "billingProducts" : null,
  "devpayProductCodes" : null,
  "marketplaceProductCodes" : null,
  "imageId" : "ami-5fb8c835",
  "instanceId" : "` + i.ID + `",
  "instanceType" : "r5.4xlarge",
  "kernelId" : null,
  "pendingTime" : "` + i.Pending.UTC().Format(time.RFC3339) + `",
  "privateIp" : "` + i.PrivateIP + `",
  "ramdiskId" : null,
  "region" : "` + i.Region + `",
  "version" : "2017-09-30"
}`
}

// Sign is what /latest/dynamic/instance-identity/rsa2048 gives for a text: base64 in lines, without the certificate.
func (e *EC2) Sign(text string) string { return e.sign(text, pkcs7.OIDDigestAlgorithmSHA256) }

// SignWeakly signs with SHA-1.
func (e *EC2) SignWeakly(text string) string { return e.sign(text, pkcs7.OIDDigestAlgorithmSHA1) }

// SignBringing makes a message that brings the certificate of its signer along, as no document of EC2's does.
func (e *EC2) SignBringing(text string) string {
	m := must(pkcs7.NewSignedData([]byte(text)))
	m.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	check(m.AddSigner(e.authority.cert, e.authority.key, pkcs7.SignerInfoConfig{}))
	return lines(must(m.Finish()))
}

func (e *EC2) sign(text string, digest asn1.ObjectIdentifier) string {
	m := must(pkcs7.NewSignedData([]byte(text)))
	m.SetDigestAlgorithm(digest)
	check(m.AddSigner(e.authority.cert, e.authority.key, pkcs7.SignerInfoConfig{}))
	inner := must(asn1.Marshal(*m.GetSignedData())) // Finish would put the certificate in
	return lines(must(asn1.Marshal(struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue
	}{pkcs7.OIDSignedData, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: inner}})))
}

func lines(der []byte) string {
	text := []byte(base64.StdEncoding.EncodeToString(der))
	var all [][]byte
	for len(text) > 64 {
		all, text = append(all, text[:64]), text[64:]
	}
	return string(bytes.Join(append(all, text), []byte("\n")))
}

// GCE signs identity tokens.
type GCE struct {
	key *rsa.PrivateKey
	id  string
}

// NewGCE makes a key.
func NewGCE() *GCE {
	key := must(rsa.GenerateKey(rand.Reader, 2048))
	sum := sha256.Sum256(key.PublicKey.N.Bytes())
	return &GCE{key, hex.EncodeToString(sum[:20])}
}

// Keys is what https://www.googleapis.com/oauth2/v3/certs would give.
func (g *GCE) Keys() []byte {
	return must(json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &g.key.PublicKey, KeyID: g.id, Algorithm: "RS256", Use: "sig"}}}))
}

// VM is what a token says.
type VM struct {
	Project, Zone, ID, Name string
	Created                 time.Time
}

// Token is what the metadata server gives for an audience with format=full. change may alter its claims.
func (g *GCE) Token(vm VM, audience string, issued time.Time, change func(claims map[string]any)) string {
	claims := map[string]any{
		"iss": "https://accounts.google.com", "aud": audience, "sub": "107517467455664443765", "azp": "107517467455664443765",
		"iat": issued.Unix(), "exp": issued.Add(time.Hour).Unix(), "email": "1-compute@developer.gserviceaccount.com", "email_verified": true,
		"google": map[string]any{"compute_engine": map[string]any{
			"project_id": vm.Project, "project_number": 739419398126, "zone": vm.Zone, "instance_id": vm.ID, "instance_name": vm.Name,
			"instance_creation_timestamp": vm.Created.Unix(), "instance_confidentiality": 0, "license_id": []string{"1000204"},
		}},
	}
	if change != nil {
		change(claims)
	}
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: g.key, KeyID: g.id}}, new(jose.SignerOptions).WithType("JWT")))
	return must(jwt.Signed(signer).Claims(claims).Serialize())
}

// Azure signs attested documents.
type Azure struct{ root, between, leaf *authority }

// NewAzure makes a root, what lies between, and the certificate of a metadata service of that name, like
// eastus.metadata.azure.com.
func NewAzure(name string) *Azure {
	root := newAuthority("Test Root G2", nil, isCA)
	between := newAuthority("Test RSA TLS Issuing CA 04", root, isCA)
	return &Azure{root, between, newAuthority(name, between, func(c *x509.Certificate) {
		c.DNSNames, c.ExtKeyUsage = []string{name}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	})}
}

// Certificates are the root and what lies between, PEM.
func (a *Azure) Certificates() []byte { return append(a.root.pem(), a.between.pem()...) }

// Document is what /metadata/attested/document gives. The message names the signature's algorithm where that of the digest
// belongs, as Azure's do.
func (a *Azure) Document(subscription, vm, nonce string, created time.Time, life time.Duration) string {
	const form = "01/02/06 15:04:05 -0700"
	text := must(json.Marshal(map[string]any{
		"licenseType": "", "nonce": nonce, "plan": map[string]string{"name": "", "product": "", "publisher": ""}, "sku": "20_04-lts",
		"subscriptionId": subscription, "vmId": vm,
		"timeStamp": map[string]string{"createdOn": created.UTC().Format(form), "expiresOn": created.Add(life).UTC().Format(form)},
	}))
	m := must(pkcs7.NewSignedData(text))
	m.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	m.SetEncryptionAlgorithm(pkcs7.OIDEncryptionAlgorithmRSA)
	check(m.SignWithoutAttr(a.leaf.cert, a.leaf.key, pkcs7.SignerInfoConfig{}))
	m.GetSignedData().SignerInfos[0].DigestAlgorithm.Algorithm = pkcs7.OIDEncryptionAlgorithmRSASHA256
	return string(must(json.Marshal(map[string]string{"encoding": "pkcs7", "signature": base64.StdEncoding.EncodeToString(must(m.Finish()))})))
}

// must is for what fails only where there is no memory, or no randomness.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
