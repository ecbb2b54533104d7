package heartbeat

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

func TestMutualTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cert, pool := selfSigned(t)
		n, co, plain := newNetwork(), &coordinator{}, &coordinator{}
		n.serve(t, addrA, plain)
		n.serve(t, addrB, co, grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		})))
		cfg := config(n, addrA, addrB)
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, RootCAs: pool}
		start(t, newClient(t, cfg))
		time.Sleep(time.Minute)
		if got := co.beatCount(); got < 40 {
			t.Errorf("got %d beats over mutual TLS in a minute, want one a second", got)
		}
		if got := read(plain, func() int { return len(plain.registered) }); got != 0 {
			t.Errorf("got %d registrations at a coordinator without TLS, want none", got)
		}
	})
}

func TestIPv6ZoneInAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const address = "[fe80::1%eth0]:7411"
		n, co := newNetwork(), &coordinator{}
		n.serve(t, address, co)
		start(t, newClient(t, config(n, address)))
		time.Sleep(time.Second)
		if co.beatCount() == 0 {
			t.Errorf("got no beat at %s", address)
		}
	})
}

// selfSigned must be called in the bubble: its clock starts in the year 2000.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IPAddresses: []net.IP{net.ParseIP("10.0.0.1"), net.ParseIP("10.0.0.2")},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
