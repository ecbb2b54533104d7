//go:build !amd64

package vaes

// Able reports whether this processor has the instructions.
func Able() bool { return false }

// Key would seal and open with one key.
type Key struct{}

// New returns an error.
func New([]byte) (*Key, error) { return nil, errUnable }

// Seal is never reached.
func (*Key) Seal(_, _, _ []byte, _ byte, _ []byte) []byte { panic(errUnable) }

// Open is never reached.
func (*Key) Open(_, _, _, _ []byte) ([]byte, error) { return nil, errUnable }
