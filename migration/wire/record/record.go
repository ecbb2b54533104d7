// Package record speaks the records of TLS 1.3 (RFC 8446, section 5) over a connection whose handshake package tls has done.
// Package tls does not let others seal its records; on processors that package vaes is for, they are sealed here instead, in
// half the time, and put where they are read to without a copy (docs/design/records.md). To the other end it is TLS as ever.
//
// secrets.go learns from a handshake what its records are sealed with, and steps.go keeps package tls from reading further.
// conn.go is the connection, half.go one direction of it and its keys, writer.go the one that sends, reader.go the one that
// receives. Certificates, versions and ciphers are package tls's and package certs' alone.
package record

import "crypto/tls"

// A record: RFC 8446, section 5.1.
const (
	headerBytes = 5 // type, version, length
	mostText    = 1 << 14
	mostSealed  = mostText + 256

	typeAlert     = 21
	typeHandshake = 22
	typeData      = 23
)

// Alerts: RFC 8446, section 6.
const (
	closeNotify       tls.AlertError = 0
	unexpectedMessage tls.AlertError = 10
	badRecordMAC      tls.AlertError = 20
	recordOverflow    tls.AlertError = 22
	decodeError       tls.AlertError = 50
	internalError     tls.AlertError = 80
	userCanceled      tls.AlertError = 90
)

// Messages that may come after the handshake: RFC 8446, section 4.6.
const (
	newSessionTicket = 4
	keyUpdate        = 24

	messageHeader = 4       // type, length
	mostMessage   = 1 << 16 // as in package tls
)

// What a KeyUpdate wishes: RFC 8446, section 4.6.3.
const (
	updateNotRequested = 0
	updateRequested    = 1
)
