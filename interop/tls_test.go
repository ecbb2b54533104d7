package interop_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// OpenSSL speaks with either end of a connection for blocks, also once both ends have taken new keys.
func TestOpenSSL(t *testing.T) {
	openssl := tool(t, "openssl")
	dir := t.TempDir()
	if err := certs.InitCA(dir); err != nil {
		t.Fatal(err)
	}
	a, b := certs.Name{Role: certs.RoleNode, Name: "a"}, certs.Name{Role: certs.RoleNode, Name: "b"}
	ids := map[string]*certs.Identity{}
	for _, n := range []certs.Name{a, b} {
		cert, key, err := certs.Issue(dir, n, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ids[n.Name], err = certs.Load(filepath.Join(dir, "ca.pem"), cert, key); err != nil {
			t.Fatal(err)
		}
	}
	speak := func(t *testing.T, command, as string, args ...string) *talk {
		return talks(t, exec.CommandContext(t.Context(), openssl, append([]string{command, "-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256",
			"-CAfile", filepath.Join(dir, "ca.pem"), "-cert", filepath.Join(dir, as+".pem"), "-key", filepath.Join(dir, as+".key")}, args...)...))
	}
	sealed := func(t *testing.T, state tls.ConnectionState) {
		if state.CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
			t.Errorf("%s, and so package tls's records", tls.CipherSuiteName(state.CipherSuite))
		}
	}

	t.Run("as a sender", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ended := make(chan error, 1)
		go func() {
			raw, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			c := wire.Server(raw, ids["b"].Server([]string{wire.Protocol}, certs.RoleNode))
			defer c.Close()
			_, err = io.Copy(c, c)
			sealed(t, c.ConnectionState())
			ended <- err
		}()
		s := speak(t, "s_client", "a", "-connect", l.Addr().String(), "-alpn", wire.Protocol)
		s.says("first\n").hears("first")
		for _, renew := range []string{"k\n", "K\n", "K\n"} { // its own key; that of both
			s.says(renew).hears("KEYUPDATE")
			s.says("more\n").hears("more")
		}
		s.says("Q\n")
		if err := <-ended; err != nil {
			t.Errorf("what it sends ends with %v", err)
		}
	})

	t.Run("as a receiver", func(t *testing.T) {
		s := speak(t, "s_server", "b", "-accept", "127.0.0.1:0", "-Verify", "1", "-alpn", wire.Protocol)
		_, at, _ := strings.Cut(s.hears("ACCEPT "), "ACCEPT ")
		raw, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		c := wire.Client(raw, ids["a"].Client([]string{wire.Protocol}, b))
		defer c.Close()
		from := bufio.NewReader(c)
		// In the last round it reads our answer to the last K, too: a connection that it closed with something unread would be reset.
		for _, renew := range []string{"", "k\n", "K\n", "K\n", ""} {
			s.says(renew)
			if _, err := io.WriteString(c, "to it\n"); err != nil {
				t.Fatal(err)
			}
			s.hears("to it") // it looks at its input first: renew and the next line are two
			s.says("from it\n")
			if line, err := from.ReadString('\n'); err != nil || line != "from it\n" {
				t.Fatalf("%q, %v", line, err)
			}
		}
		sealed(t, c.ConnectionState())
		s.says("Q\n")
		if _, err := from.ReadByte(); err != io.EOF {
			t.Errorf("what it sends ends with %v", err)
		}
	})
}

// talk is a conversation with a program.
type talk struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

func talks(t *testing.T, cmd *exec.Cmd) *talk {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return &talk{t, in, bufio.NewReader(out)}
}

func (s *talk) says(line string) *talk {
	s.t.Helper()
	if _, err := io.WriteString(s.in, line); err != nil {
		s.t.Fatal(err)
	}
	return s
}

// hears waits for a line that has the word in it, and returns it.
func (s *talk) hears(word string) string {
	s.t.Helper()
	var before strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if strings.Contains(line, word) {
			return strings.TrimSpace(line)
		}
		before.WriteString(line)
		if err != nil {
			s.t.Fatalf("it ended (%v) without %q:\n%s", err, word, before.String())
		}
	}
}
