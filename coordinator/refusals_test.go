package coordinator

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/lifeboat/lifeboat/accepted"
	"github.com/lifeboat/lifeboat/certs"
)

// A refused caller is logged once a minute, and a caller that only went away is not.
func TestRefusalsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		r := &refusals{log: slog.New(slog.NewTextHandler(&said, nil))}
		from := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 5}
		for _, err := range []error{io.EOF, os.ErrDeadlineExceeded} {
			r.tell(from, err)
		}
		for range 3 {
			r.tell(from, errors.New("certificate is not signed by our CA"))
		}
		time.Sleep(refusalEvery)
		r.tell(from, errors.New("remote error: tls: bad certificate"))
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "from=10.0.0.7:5") || !strings.Contains(lines[0], "not signed by our CA") || !strings.Contains(lines[1], "others=2") {
			t.Errorf("got %q, want the first refusal, and a minute later the next with two others", lines)
		}
	})
}

// A node that trusts another CA, or whose certificate another CA signed, is logged at the handshake.
func TestRefusalAtTheDoor(t *testing.T) {
	ours, theirs := t.TempDir(), t.TempDir()
	for _, dir := range []string{ours, theirs} {
		if err := certs.InitCA(dir); err != nil {
			t.Fatal(err)
		}
	}
	identity := func(dir string, n certs.Name) *certs.Identity {
		cert, key, err := certs.Issue(dir, n, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		id, err := certs.Load(dir+"/ca.pem", cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	here, stranger := identity(ours, certs.Name{Role: certs.RoleCoordinator, Name: "c1"}), identity(theirs, certs.Name{Role: certs.RoleNode, Name: "a"})
	believes := stranger.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator})
	gullible := believes.Clone()
	gullible.VerifyConnection = nil
	for words, shows := range map[string]*tls.Config{"remote error: tls": believes, "not signed by our CA": gullible} {
		var said bytes.Buffer
		d := doors{credentials.NewTLS(here.Server([]string{"h2"}, certs.RoleNode)), nil, nil, newLobby(), accepted.NewStrangers(slog.New(slog.DiscardHandler)), &connected{}, &refusals{log: slog.New(slog.NewTextHandler(&said, nil))}}
		near, far := net.Pipe()
		go func() {
			_ = tls.Client(far, shows).Handshake()
			_, _ = far.Read(make([]byte, 100)) // the alert
			far.Close()
		}()
		if _, _, err := d.ServerHandshake(near); err == nil {
			t.Fatalf("%s: a stranger was let in", words)
		}
		if !strings.Contains(said.String(), words) {
			t.Errorf("got %q, want a line with %q", said.String(), words)
		}
	}
}
