package api

import (
	"regexp"
	"strings"
)

// Plain is err in the words of people who run machines and know no Go: see plainly. It unwraps to err.
func Plain(err error) error { return plain{err} }

type plain struct{ error }

func (p plain) Error() string { return plainly(p.error.Error()) }
func (p plain) Unwrap() error { return p.error }

// onTheWay is what package net puts before the system's word: the call, and both addresses. The message around names the one that matters.
var onTheWay = regexp.MustCompile(`^(raw-)?(dial|read|write) (tcp|udp|unix)[46]?( \S+)?: ((connect|read|write): )?`)

// unknownName is package net's word for a host name that no server knows.
var unknownName = regexp.MustCompile(`^lookup (\S+)( on \S+)?: no such host$`)

// plainly puts what Go and gRPC say of a connection that came to nothing into plain words: what the other end did. Anything else stays as it
// is, above all what another machine of the fleet says. It is for people; nothing branches on it.
func plainly(said string) string {
	if why, shake := strings.CutPrefix(said, "authentication handshake failed: "); shake {
		return "no handshake: " + plainly(why)
	}
	if code, web := strings.CutPrefix(said, "unexpected HTTP status code received from server: "); web {
		code, _, _ = strings.Cut(code, ";")
		return "it answers as a web server does: " + code
	}
	// gRPC waits for the first bytes of a server, and closes the connection when they do not come.
	why, first := strings.CutPrefix(said, "error reading server preface: ")
	why = onTheWay.ReplaceAllString(why, "")
	if name := unknownName.FindStringSubmatch(why); name != nil {
		return "no host of the name " + name[1] + " is known"
	}
	switch alert, alerted := strings.CutPrefix(why, "remote error: tls: "); {
	case alert == "no application protocol":
		return "it speaks another protocol"
	case alerted:
		return "it refuses this certificate (" + alert + ")"
	case why == "EOF", why == "unexpected EOF", why == "connection reset by peer", why == "broken pipe":
		return "it closes the connection"
	case why == "tls: first record does not look like a TLS handshake":
		return "it speaks no TLS"
	case why == "i/o timeout", strings.HasPrefix(why, "context deadline exceeded"), first && why == "use of closed network connection":
		return "no answer in time"
	}
	return why
}
