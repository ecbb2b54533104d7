package record

import (
	"bytes"
	"crypto/fips140"
	"crypto/tls"
	"encoding/hex"

	"github.com/lifeboat/lifeboat/migration/wire/vaes"
)

// Secrets are what the two ends of a handshake agree on to seal what they say afterwards. Package tls tells them to whoever
// writes its key log. They stay in memory.
type Secrets struct{ client, server []byte }

// Write takes a line of a key log: a label, the client's random number, the secret (RFC 9850, section 2).
func (s *Secrets) Write(line []byte) (int, error) {
	if f := bytes.Fields(line); len(f) == 3 {
		secret := make([]byte, hex.DecodedLen(len(f[2])))
		_, err := hex.Decode(secret, f[2])
		switch label := string(f[0]); {
		case err != nil: // Fits will miss it
		case label == "CLIENT_TRAFFIC_SECRET_0":
			s.client = secret
		case label == "SERVER_TRAFFIC_SECRET_0":
			s.server = secret
		}
	}
	return len(line), nil
}

// able reports whether records are sealed faster by package vaes. Who asks for FIPS 140 keeps to what was validated for that.
func able() bool { return vaes.Able() && !fips140.Enabled() }

// Learn returns a configuration for one connection like c, whose handshake s learns from.
func (s *Secrets) Learn(c *tls.Config) *tls.Config {
	if !able() {
		return c
	}
	l := s.learn(c)
	if choose := c.GetConfigForClient; choose != nil {
		l.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if chosen == nil || err != nil {
				return chosen, err
			}
			return s.learn(chosen), nil
		}
	}
	return l
}

func (s *Secrets) learn(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.KeyLogWriter = s
	c.SessionTicketsDisabled = true // else a server's first records after the handshake would be package tls's
	return c
}

// Fits reports whether a connection in this state can go on with Client or Server.
func (s *Secrets) Fits(state tls.ConnectionState) bool {
	return able() && state.HandshakeComplete && state.Version == tls.VersionTLS13 && state.CipherSuite == tls.TLS_AES_128_GCM_SHA256 &&
		s.client != nil && s.server != nil
}
