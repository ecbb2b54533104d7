package record

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/certs"
)

// stepping is a connection for a handshake that reads no further.
type stepping struct {
	net.Conn
	steps Steps
}

func (s *stepping) Read(p []byte) (int, error) { return s.steps.Read(s.Conn, p) }

// end is one end of a connection: ours, or package tls's.
type end interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// ends does a handshake. Ours is the client's or the server's end, and goes on by itself; the other is package tls's for good.
func ends(t testing.TB, client bool) (ours *Conn, theirs *tls.Conn, raw net.Conn) {
	t.Helper()
	if !able() {
		t.Skip("this processor's records are package tls's")
	}
	a, b := certs.Dev(certs.Name{Role: certs.RoleNode, Name: "a"}), certs.Dev(certs.Name{Role: certs.RoleNode, Name: "b"})
	ask, answer := a.Client([]string{"x"}, certs.Name{Role: certs.RoleNode, Name: "b"}), b.Server([]string{"x"}, certs.RoleNode)
	ask.ClientSessionCache = tls.NewLRUClientSessionCache(1) // it asks for tickets
	plain := answer.Clone()
	plain.SessionTicketsDisabled, plain.GetConfigForClient = false, nil // as foreign servers have it
	answer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return plain, nil }
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	var s Secrets
	var mine *tls.Conn
	goOn := Client
	if client {
		mine, theirs = tls.Client(&stepping{Conn: here}, s.Learn(ask)), tls.Server(there, answer)
	} else {
		mine, theirs, goOn = tls.Server(&stepping{Conn: here}, s.Learn(answer)), tls.Client(there, ask), Server
	}
	var shaking sync.WaitGroup
	shaking.Go(func() {
		if err := theirs.Handshake(); err != nil {
			t.Error(err)
		}
	})
	if err := mine.Handshake(); err != nil {
		t.Fatal(err)
	}
	if !s.Fits(mine.ConnectionState()) {
		t.Fatalf("%+v does not fit %+v", s, mine.ConnectionState())
	}
	ours, err := goOn(here, &s, bufio.NewReaderSize(here, 64<<10), 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	if client { // the server's handshake ends once its ticket is read
		go theirs.Write([]byte("!"))
		if one := make([]byte, 1); !gets(ours, one) || one[0] != '!' {
			t.Fatalf("%q came first", one)
		}
	}
	shaking.Wait()
	return ours, theirs, here
}

func gets(r io.Reader, p []byte) bool {
	_, err := io.ReadFull(r, p)
	return err == nil
}

// roles runs a test for the client's end and for the server's.
func roles(t *testing.T, f func(t *testing.T, client bool)) {
	for _, client := range []bool{true, false} {
		t.Run(map[bool]string{true: "client", false: "server"}[client], func(t *testing.T) { f(t, client) })
	}
}

// carries has one end write text in pieces and the other read it with a buffer of so many bytes.
func carries(t *testing.T, from, to io.ReadWriter, text []byte, piece, buffer int) {
	t.Helper()
	var writing sync.WaitGroup
	writing.Go(func() {
		for rest := text; len(rest) > 0; {
			n, err := from.Write(rest[:min(piece, len(rest))])
			if err != nil || n != min(piece, len(rest)) {
				t.Errorf("wrote %d of %d bytes: %v", n, min(piece, len(rest)), err)
				return
			}
			rest = rest[n:]
		}
	})
	defer writing.Wait()
	var got []byte
	for p := make([]byte, buffer); len(got) < len(text); {
		n, err := to.Read(p)
		if err != nil {
			t.Errorf("after %d of %d bytes: %v", len(got), len(text), err)
			return
		}
		got = append(got, p[:n]...)
	}
	if !bytes.Equal(got, text) {
		t.Errorf("%d bytes in pieces of %d came otherwise", len(text), piece)
	}
}

func content(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

func TestBothWays(t *testing.T) {
	roles(t, func(t *testing.T, client bool) {
		ours, theirs, _ := ends(t, client)
		text := content(300_000)
		for _, piece := range []int{1 << 20, mostText + 1, mostText, 1000} {
			for _, buffer := range []int{1 << 20, mostText + 1, mostText, 333} {
				carries(t, ours, theirs, text, piece, buffer)
				carries(t, theirs, ours, text, piece, buffer)
			}
		}
		carries(t, ours, theirs, text[:100], 1, 100)
		carries(t, theirs, ours, text[:100], 1, 1)
		if n, err := ours.Read(nil); n != 0 || err != nil {
			t.Errorf("reading nothing: %d, %v", n, err)
		}
	})
}

func TestEachEndSaysThatNoMoreComes(t *testing.T) {
	roles(t, func(t *testing.T, client bool) {
		for _, weFirst := range []bool{true, false} {
			ours, theirs, _ := ends(t, client)
			first, second := end(ours), end(theirs)
			if !weFirst {
				first, second = theirs, ours
			}
			go first.CloseWrite()
			if b, err := io.ReadAll(second); len(b) > 0 || err != nil {
				t.Errorf("%q, %v behind the end", b, err)
			}
			if _, err := first.Write([]byte("more")); err == nil {
				t.Error("more was said behind the end")
			}
			carries(t, second, first, content(50_000), 1<<20, 1<<20) // the other direction goes on
			go second.Close()
			if b, err := io.ReadAll(first); len(b) > 0 || err != nil {
				t.Errorf("%q, %v behind the end", b, err)
			}
			first.Close()
			if _, err := ours.Write([]byte("more")); err == nil || weFirst && !errors.Is(err, net.ErrClosed) {
				t.Errorf("wrote to a closed connection: %v", err)
			}
			if _, err := ours.Read(make([]byte, 1)); err == nil {
				t.Error("read from a closed connection")
			}
		}
	})
}

// A stream that ends between two records is over, as package tls has it. One that ends amid a record was cut.
func TestStreamThatEndsWithoutAWord(t *testing.T) {
	for cut, want := range map[int]error{0: io.EOF, 1: io.ErrUnexpectedEOF, headerBytes: io.ErrUnexpectedEOF, 20: io.ErrUnexpectedEOF} {
		ours, _, far := forged(t)
		go func() {
			far.peer.Write(far.sealed(typeData, []byte("text"))[:cut])
			far.peer.Close()
		}()
		if _, err := ours.Read(make([]byte, 100)); !errors.Is(err, want) {
			t.Errorf("after %d bytes: %v, want %v", cut, err, want)
		}
	}
}

// A deadline amid a record costs nothing of it.
func TestReadGoesOnAfterADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, raw, far := forged(t)
		b := far.sealed(typeData, []byte("text"))
		for i := range b {
			raw.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := ours.Read(make([]byte, 100)); !isTimeout(err) {
				t.Fatalf("before byte %d: %v", i, err)
			}
			raw.SetReadDeadline(time.Time{})
			go far.peer.Write(b[i : i+1])
			synctest.Wait()
		}
		p := make([]byte, 100)
		if n, err := ours.Read(p); err != nil || string(p[:n]) != "text" {
			t.Errorf("%q, %v", p[:n], err)
		}
	})
}

func isTimeout(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}

// A write that a deadline breaks off may have sent a part of a record: nothing can follow it.
func TestNothingFollowsABrokenWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, raw, _ := forged(t)
		raw.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := ours.Write([]byte("text")); !isTimeout(err) {
			t.Errorf("nobody reads: %v", err)
		}
		raw.SetWriteDeadline(time.Time{})
		if _, err := ours.Write([]byte("text")); !isTimeout(err) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// Who breaks off its writes by a deadline that has passed still says that no more comes, if no record was broken off.
func TestEndIsSaidInSpiteOfADeadline(t *testing.T) {
	ours, theirs, raw := ends(t, true)
	raw.SetWriteDeadline(time.Now())
	said := make(chan error, 1)
	go func() { said <- ours.CloseWrite() }()
	if b, err := io.ReadAll(theirs); len(b) > 0 || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if err := <-said; err != nil {
		t.Error(err)
	}
}

// Close does not wait for ever for somebody who does not read, nor for a write that waits for them.
func TestCloseBesideSomebodyWhoDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, writing := range []bool{false, true} {
			ours, _, _ := forged(t)
			var write sync.WaitGroup
			if writing {
				write.Go(func() { ours.Write([]byte("text")) })
				synctest.Wait()
			}
			began := time.Now()
			ours.Close()
			write.Wait()
			if took := time.Since(began); took > farewell || writing && took > 0 {
				t.Errorf("closed after %v, while a write waited: %v", took, writing)
			}
		}
	})
}

// Each direction may take new keys, by itself or because the other end wishes so.
func TestNewKeys(t *testing.T) {
	roles(t, func(t *testing.T, client bool) {
		ours, theirs, _ := ends(t, client)
		text := content(200_000)
		for range 3 {
			before := ours.out.secret
			ours.out.perKey = 3
			carries(t, ours, theirs, text, 1<<20, 1<<20)
			if bytes.Equal(ours.out.secret, before) || ours.out.seq > 3 {
				t.Fatalf("%d records are sealed with one key", ours.out.seq)
			}
			carries(t, theirs, ours, text, 1<<20, 1<<20)
		}
		before := ours.in.secret
		go func() {
			theirs.Read(make([]byte, 1))
			theirs.Write([]byte("!"))
		}()
		ours.out.mu.Lock()
		ours.out.renew(updateRequested)
		ours.out.mu.Unlock()
		go ours.Write([]byte("?"))
		if one := make([]byte, 1); !gets(ours, one) || one[0] != '!' || bytes.Equal(ours.in.secret, before) {
			t.Errorf("%q came, and whether under a new key: %v", one, !bytes.Equal(ours.in.secret, before))
		}
		carries(t, theirs, ours, text, 1<<20, 1<<20)
		carries(t, ours, theirs, text, 1<<20, 1<<20)
	})
}

// The other end may wish for new keys of both directions, and a message of the handshake may come in pieces.
func TestWishForNewKeys(t *testing.T) {
	ours, _, far := forged(t)
	hears, err := newHalf(ours.out.secret)
	if err != nil {
		t.Fatal(err)
	}
	says := append(far.sealed(typeHandshake, []byte{newSessionTicket, 0, 0, 2, 7}), far.sealed(typeHandshake, []byte{7, keyUpdate, 0, 0, 1})...)
	says = append(says, far.sealed(typeHandshake, []byte{updateRequested})...)
	if far.half, err = far.next(); err != nil {
		t.Fatal(err)
	}
	says = append(says, far.sealed(typeData, []byte("text"))...)
	go far.peer.Write(says)
	got := make(chan string, 1)
	go func() {
		p := make([]byte, 10)
		n, err := ours.Read(p)
		got <- fmt.Sprintf("%s %v", p[:n], err)
		ours.Write([]byte("answer"))
	}()
	for _, want := range []string{string([]byte{keyUpdate, 0, 0, 1, updateNotRequested, typeHandshake}), "answer" + string(rune(typeData))} {
		b := make([]byte, headerBytes+len(want)+16)
		if _, err := io.ReadFull(far.peer, b); err != nil {
			t.Fatal(err)
		}
		nonce := hears.nonce()
		if text, err := hears.key.Open(nil, nonce[:], b[headerBytes:], b[:headerBytes]); err != nil || string(text) != want {
			t.Fatalf("%q, %v, want %q", text, err, want)
		}
		if hears, err = hears.next(); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-got; got != "text <nil>" {
		t.Errorf("under the new key came %s", got)
	}
}

// Records that bring nothing count only in a row.
func TestNothingNowAndThen(t *testing.T) {
	ours, _, far := forged(t)
	go func() {
		for range 2 {
			for range mostUseless {
				far.peer.Write(far.sealed(typeData, nil))
			}
			far.peer.Write(far.sealed(typeData, []byte("text")))
		}
	}()
	for range 2 {
		if p := make([]byte, 4); !gets(ours, p) {
			t.Error("nothing came any more")
		}
	}
}

// Each read ends with a record, however much is there.
func TestSteps(t *testing.T) {
	from := bytes.NewReader([]byte{22, 3, 1, 0, 3, 'a', 'b', 'c', 20, 3, 3, 0, 1, 'd', 23, 3, 3, 1, 0, 'e'})
	var s Steps
	var reads []string
	for p := make([]byte, 100); ; {
		n, err := s.Read(from, p)
		if err != nil {
			break
		}
		reads = append(reads, string(p[:n]))
	}
	if want := []string{"\x16\x03\x01\x00\x03", "abc", "\x14\x03\x03\x00\x01", "d", "\x17\x03\x03\x01\x00", "e"}; !slices.Equal(reads, want) {
		t.Errorf("read %q, want %q", reads, want)
	}
}

// forger is an other end that seals whatever a test says.
type forger struct {
	peer net.Conn
	half
}

func forged(t testing.TB) (ours *Conn, raw net.Conn, far *forger) {
	t.Helper()
	if !able() {
		t.Skip("this processor's records are package tls's")
	}
	s := &Secrets{client: content(32), server: content(32)}
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	ours, err := Client(here, s, bufio.NewReaderSize(here, 32<<10), 32<<10)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := newHalf(s.server)
	if err != nil {
		t.Fatal(err)
	}
	return ours, here, &forger{there, theirs}
}

// sealed is a record whose text ends with these bytes: the type, and zeros perhaps.
func (f *forger) sealed(last byte, text []byte) []byte {
	n := len(text) + 1 + 16
	b := []byte{typeData, 3, 3, byte(n >> 8), byte(n)}
	nonce := f.nonce()
	return f.key.Seal(b, nonce[:], text, last, b)
}

// What is wrong is refused with the alert that RFC 8446 has for it, and nothing of it is handed out.
func TestRefusedRecords(t *testing.T) {
	for name, c := range map[string]struct {
		want tls.AlertError
		say  func(f *forger) []byte
	}{
		"flipped bit": {badRecordMAC, func(f *forger) []byte {
			b := f.sealed(typeData, []byte("text"))
			b[7] ^= 1
			return b
		}},
		"record twice": {badRecordMAC, func(f *forger) []byte {
			f.sealed(typeData, nil)
			return f.sealed(typeData, []byte("text"))
		}},
		"no room for a tag":    {badRecordMAC, func(*forger) []byte { return []byte{typeData, 3, 3, 0, 3, 1, 2, 3} }},
		"in the clear":         {unexpectedMessage, func(*forger) []byte { return []byte{typeAlert, 3, 3, 0, 2, 1, 0} }},
		"too long":             {recordOverflow, func(*forger) []byte { return []byte{typeData, 3, 3, 0x41, 0x01} }},
		"too long inside":      {recordOverflow, func(f *forger) []byte { return f.sealed(typeData, content(mostText+1)) }},
		"nothing but zeros":    {unexpectedMessage, func(f *forger) []byte { return f.sealed(0, make([]byte, 5)) }},
		"unknown type":         {unexpectedMessage, func(f *forger) []byte { return f.sealed(99, []byte("text")) }},
		"half an alert":        {decodeError, func(f *forger) []byte { return f.sealed(typeAlert, []byte{1}) }},
		"another handshake":    {unexpectedMessage, func(f *forger) []byte { return f.sealed(typeHandshake, []byte{1, 0, 0, 1, 0}) }},
		"a message too long":   {decodeError, func(f *forger) []byte { return f.sealed(typeHandshake, []byte{4, 1, 0, 1}) }},
		"a wish that is none":  {decodeError, func(f *forger) []byte { return f.sealed(typeHandshake, []byte{keyUpdate, 0, 0, 1, 2}) }},
		"keys without a wish":  {decodeError, func(f *forger) []byte { return f.sealed(typeHandshake, []byte{keyUpdate, 0, 0, 0}) }},
		"more behind new keys": {unexpectedMessage, func(f *forger) []byte { return f.sealed(typeHandshake, []byte{keyUpdate, 0, 0, 1, 0, 4}) }},
		"data amid a message": {unexpectedMessage, func(f *forger) []byte {
			return append(f.sealed(typeHandshake, []byte{4, 0}), f.sealed(typeData, []byte("text"))...)
		}},
		"for ever nothing": {unexpectedMessage, func(f *forger) (b []byte) {
			for range mostUseless + 1 {
				b = append(b, f.sealed(typeData, nil)...)
			}
			return b
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ours, _, far := forged(t)
			go far.peer.Write(c.say(far))
			hears, err := newHalf(ours.out.secret)
			if err != nil {
				t.Fatal(err)
			}
			alerts := make(chan string, 1)
			go func() {
				answer := make([]byte, headerBytes+2+1+16)
				_, _ = io.ReadFull(far.peer, answer)
				nonce := hears.nonce()
				text, err := hears.key.Open(nil, nonce[:], answer[headerBytes:], answer[:headerBytes])
				alerts <- fmt.Sprint(text, err)
			}()
			p := make([]byte, 40<<10)
			for range 2 {
				n, err := ours.Read(p)
				if want := "local error: " + c.want.Error(); err == nil || err.Error() != want {
					t.Errorf("%d bytes, %v, want %s", n, err, want)
				}
			}
			if got, want := <-alerts, fmt.Sprint([]byte{2, byte(c.want), typeAlert}, nil); got != want {
				t.Errorf("the other end hears %s, want %s", got, want)
			}
			if _, err := ours.Write([]byte("text")); err == nil {
				t.Error("something was said behind the alert")
			}
		})
	}
}

func TestAlerts(t *testing.T) {
	ours, _, far := forged(t)
	go far.peer.Write(append(far.sealed(typeAlert, []byte{1, byte(userCanceled)}), far.sealed(typeAlert, []byte{2, 42})...))
	for range 2 {
		if _, err := ours.Read(make([]byte, 10)); err == nil || err.Error() != "remote error: tls: bad certificate" {
			t.Errorf("%v", err)
		}
	}
}

// FuzzRecords has an other end that knows the keys say anything.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{typeHandshake, 24, 0, 0, 1, 1, 0, typeData, 't', 'e', 'x', 't'}, 5)
	f.Add([]byte{typeAlert, 1, 0}, 100)
	f.Fuzz(func(t *testing.T, says []byte, buffer int) {
		ours, _, far := forged(t)
		go io.Copy(io.Discard, far.peer)
		go func() {
			for len(says) > 0 {
				n := min(len(says), 7)
				far.peer.Write(far.sealed(says[0], says[1:n]))
				says = says[n:]
			}
			far.peer.Close()
		}()
		p := make([]byte, 1+uint(buffer)%100)
		for {
			if n, err := ours.Read(p); err != nil {
				return
			} else if n == 0 || n > 6 {
				t.Fatalf("%d bytes at once", n)
			}
		}
	})
}
