package attest

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	"github.com/smallstep/pkcs7"
)

// Faults of a document that no cloud made, or that was changed.
var (
	errNotSigned = errors.New("the document is not signed as the cloud signs them (PKCS #7, one RSA signature over SHA-256)")
	errForged    = errors.New("the document's signature does not match it")
)

// decode reads base64 with the line breaks that metadata services put in.
func decode(text []byte) ([]byte, error) {
	der, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil || len(der) == 0 {
		return nil, errNotSigned
	}
	return der, nil
}

// parse reads a signed message (RFC 2315), and refuses any but one RSA signature over SHA-256. The library itself would also take SHA-1 and
// DSA.
func parse(der []byte) (message *pkcs7.PKCS7, err error) {
	message, err = pkcs7.Parse(der)
	if err != nil || len(message.Signers) != 1 || len(message.Content) == 0 {
		return nil, errNotSigned
	}
	one := &message.Signers[0]
	// Azure puts the signature's algorithm where the digest's belongs.
	if one.DigestAlgorithm.Algorithm.Equal(pkcs7.OIDEncryptionAlgorithmRSASHA256) {
		one.DigestAlgorithm.Algorithm = pkcs7.OIDDigestAlgorithmSHA256
	}
	if !one.DigestAlgorithm.Algorithm.Equal(pkcs7.OIDDigestAlgorithmSHA256) ||
		!oneOf(one.DigestEncryptionAlgorithm.Algorithm, pkcs7.OIDEncryptionAlgorithmRSA, pkcs7.OIDEncryptionAlgorithmRSASHA256) {
		return nil, errNotSigned
	}
	return message, nil
}

func oneOf(id asn1.ObjectIdentifier, ids ...asn1.ObjectIdentifier) bool {
	return slices.ContainsFunc(ids, id.Equal)
}

// signedBy returns the signed content, if one of signers has signed it. Certificates in the message itself are ignored.
func signedBy(message *pkcs7.PKCS7, signers []*x509.Certificate) ([]byte, error) {
	message.Certificates = signers
	if message.GetOnlySigner() == nil {
		return nil, errNoSigner
	}
	if err := message.Verify(); err != nil {
		return nil, errForged
	}
	return message.Content, nil
}

var errNoSigner = errors.New("the document is signed by none of the cloud's certificates that the coordinator has: is that of the machine's region among them?")
