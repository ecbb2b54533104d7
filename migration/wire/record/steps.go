package record

import (
	"encoding/binary"
	"io"
)

// Steps reads a handshake record by record. Package tls reads ahead, and would keep what follows the handshake.
type Steps struct {
	header [headerBytes]byte
	begun  int // bytes of header that were read
	body   int // bytes that its record has still
}

// Read reads from r, but not beyond the end of a record.
func (s *Steps) Read(r io.Reader, p []byte) (int, error) {
	if s.body > 0 {
		n, err := r.Read(p[:min(len(p), s.body)])
		s.body -= n
		return n, err
	}
	n, err := r.Read(p[:min(len(p), headerBytes-s.begun)])
	s.begun += copy(s.header[s.begun:], p[:n])
	if s.begun == headerBytes {
		s.begun, s.body = 0, int(binary.BigEndian.Uint16(s.header[3:]))
	}
	return n, err
}
