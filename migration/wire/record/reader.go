package record

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"

	"github.com/lifeboat/lifeboat/migration/wire/vaes"
)

// mostUseless is how many records in a row may bring nothing; else a peer could keep a reader busy for ever. Package tls has
// a bound, too.
const mostUseless = 32

// reader is the half that receives.
type reader struct {
	half
	from    *bufio.Reader
	answers *writer
	rest    []byte // of a text that had no room; it lies in the buffer of from
	message []byte // the beginning of a message of the handshake
	useless int    // records in a row that brought nothing
	err     error  // what all further reads return
}

func (r *reader) read(p []byte) (n int, err error) {
	for len(p) > 0 && n == 0 {
		switch {
		case len(r.rest) > 0:
			n = copy(p, r.rest)
			r.rest = r.rest[n:]
		case r.err != nil:
			return 0, r.err
		default:
			if n, err = r.record(p); err == nil {
				continue
			}
			if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
				r.err = err
			}
			return 0, err
		}
	}
	return n, nil
}

// record reads a record. It puts the text into p and returns its length, or if p has no room for it, puts it into rest.
func (r *reader) record(p []byte) (int, error) {
	header, sealed, err := r.sealed()
	if err != nil {
		return 0, err
	}
	into, straight := sealed[:0], len(sealed)-vaes.Overhead <= len(p)
	if straight {
		into = p[:0]
	}
	nonce := r.nonce()
	text, err := r.key.Open(into, nonce[:], sealed, header)
	if err != nil {
		return 0, r.answers.refusal(badRecordMAC)
	}
	_, _ = r.from.Discard(len(header) + len(sealed)) // what was peeked at
	kind, text := unpad(text)
	switch {
	case len(text) > mostText:
		return 0, r.answers.refusal(recordOverflow)
	case kind != typeHandshake && len(r.message) > 0:
		return 0, r.answers.refusal(unexpectedMessage)
	case kind == typeData && len(text) > 0:
		if r.useless = 0; straight {
			return len(text), nil
		}
		r.rest = text
		return 0, nil
	}
	r.useless++
	switch {
	case r.useless > mostUseless:
		return 0, r.answers.refusal(unexpectedMessage)
	case kind == typeData:
		return 0, nil
	case kind == typeAlert:
		return 0, r.alert(text)
	case kind == typeHandshake:
		return 0, r.handshake(text)
	}
	return 0, r.answers.refusal(unexpectedMessage)
}

// sealed returns the next record as it came. It stays where it is.
func (r *reader) sealed() (header, body []byte, err error) {
	header, err = r.from.Peek(headerBytes)
	switch {
	case err == io.EOF && len(header) > 0:
		return nil, nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, nil, err
	}
	size := int(binary.BigEndian.Uint16(header[3:]))
	switch {
	case header[0] != typeData:
		return nil, nil, r.answers.refusal(unexpectedMessage)
	case size > mostSealed:
		return nil, nil, r.answers.refusal(recordOverflow)
	}
	all, err := r.from.Peek(headerBytes + size)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, nil, err
	}
	return all[:headerBytes], all[headerBytes:], nil
}

// unpad takes the zeros off the end of a text, and the type, which stands before them; 0: there is none.
func unpad(text []byte) (kind byte, _ []byte) {
	for i := len(text) - 1; i >= 0; i-- {
		if text[i] != 0 {
			return text[i], text[:i]
		}
	}
	return 0, nil
}

func (r *reader) alert(text []byte) error {
	if len(text) != 2 {
		return r.answers.refusal(decodeError)
	}
	switch a := tls.AlertError(text[1]); a {
	case closeNotify:
		return io.EOF
	case userCanceled: // closeNotify follows
		return nil
	default:
		return &net.OpError{Op: "remote error", Err: a} // as in package tls
	}
}

// handshake takes a part of a message. Tickets are of no use to who comes back without them.
func (r *reader) handshake(part []byte) error {
	r.message = append(r.message, part...)
	for len(r.message) >= messageHeader {
		kind, size := r.message[0], int(r.message[1])<<16|int(r.message[2])<<8|int(r.message[3])
		if size > mostMessage {
			return r.answers.refusal(decodeError)
		}
		if len(r.message) < messageHeader+size {
			return nil
		}
		body := r.message[messageHeader:][:size]
		r.message = r.message[messageHeader+size:]
		switch {
		case kind == newSessionTicket:
		case kind != keyUpdate:
			return r.answers.refusal(unexpectedMessage)
		case len(r.message) > 0: // nothing may follow under the old key (RFC 8446, section 5.1)
			return r.answers.refusal(unexpectedMessage)
		case size != 1 || body[0] > updateRequested:
			return r.answers.refusal(decodeError)
		default:
			return r.renew(body[0] == updateRequested)
		}
	}
	return nil
}

// renew takes a new key for what comes, and for what is sent if the other end wishes so.
func (r *reader) renew(both bool) error {
	next, err := r.next()
	if err != nil {
		return r.answers.refusal(internalError)
	}
	if r.half, r.message = next, nil; both {
		return r.answers.answer()
	}
	return nil
}
