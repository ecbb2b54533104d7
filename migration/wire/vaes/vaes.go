// Package vaes is AES-128-GCM (NIST SP 800-38D) by those instructions of x86 processors that work on two blocks at once: AMD's
// have them since Zen 3, Intel's since Ice Lake. It takes little more than half the time of crypto/cipher (docs/design/records.md).
// It is for the records of package record, each of at least one byte and at most some KiB. It has no other ciphers, no keys of
// other lengths, and nothing for other processors.
package vaes

import "errors"

const (
	// NonceSize is the length of a nonce, in bytes. Under one key no nonce may be used for two texts.
	NonceSize = 12
	// Overhead is how many bytes sealing adds: the tag.
	Overhead = 16
)

var (
	errOpen   = errors.New("the tag is not that of the sealed text")
	errUnable = errors.New("this processor lacks the instructions for AES on two blocks at once")
)
