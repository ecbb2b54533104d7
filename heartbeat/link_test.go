package heartbeat

import (
	"context"
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
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
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

// The remaining time is that of the moment in which the message goes out, however long the connection took. A coordinator
// would take another deadline for a change, write it to its log and announce it.
func TestRemainingTimeIsOfTheMomentInWhichItIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, co := newNetwork(), &coordinator{interval: time.Second}
		n.serve(t, addrA, co)
		cfg := config(n, addrA)
		deadline := time.Now().Add(2 * time.Minute)
		notice := func() *api.Notice {
			return &api.Notice{Incident: "inc", Kind: "terminate", Stance: "drain", Remaining: durationpb.New(time.Until(deadline))}
		}
		cfg.Status = func() *api.Status { return &api.Status{Notice: notice()} }
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			time.Sleep(3 * time.Second)
			return n.dial(ctx, network, address)
		}
		said := map[string]*api.Notice{}
		co.onBeat = func(context.Context) error {
			co.mu.Lock()
			defer co.mu.Unlock()
			said["beat"] = co.beats[0].GetStatus().GetNotice()
			said["registration"] = co.registered[0].GetStatus().GetNotice()
			return nil
		}
		c := newClient(t, cfg)
		if err := c.WorkerDecommission(t.Context(), notice()); err != nil {
			t.Fatal(err)
		}
		said["announcement"] = read(co, func() *api.Notice { return co.calls[0].(*api.WorkerDecommissionRequest).Notice })
		start(t, newClient(t, cfg))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for what, wait := range map[string]time.Duration{"announcement": 3 * time.Second, "registration": 6 * time.Second, "beat": 6 * time.Second} {
			if got, want := said[what].GetRemaining().AsDuration(), 2*time.Minute-wait; (got - want).Abs() > time.Millisecond {
				t.Errorf("%s: got %s that remain, want %s", what, got, want)
			}
		}
	})
}
