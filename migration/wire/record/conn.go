package record

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"net"
	"time"
)

// Conn speaks records over a connection after its handshake. One goroutine may read at a time, and any number write.
type Conn struct {
	raw net.Conn
	in  reader
	out writer
}

// Client goes on where s has learned from a client's handshake. Nothing was read from raw beyond that, and package tls must say
// nothing more. What comes is read through in, which has room for a record; out bytes go out at once.
func Client(raw net.Conn, s *Secrets, in *bufio.Reader, out int) (*Conn, error) {
	return newConn(raw, s.server, s.client, in, out)
}

// Server is Client at the other end.
func Server(raw net.Conn, s *Secrets, in *bufio.Reader, out int) (*Conn, error) {
	return newConn(raw, s.client, s.server, in, out)
}

func newConn(raw net.Conn, theirs, ours []byte, in *bufio.Reader, out int) (*Conn, error) {
	get, err := newHalf(theirs)
	put, err2 := newHalf(ours)
	c := &Conn{raw: raw, out: writer{half: put, to: raw, most: out, perKey: mostRecords}}
	c.in = reader{half: get, from: in, answers: &c.out}
	return c, cmp.Or(err, err2)
}

// Read reads what has come. io.EOF says that the other end has ended what it says, or the stream between two records. After a
// deadline reading goes on where it was, after another error it does not.
func (c *Conn) Read(p []byte) (int, error) { return c.in.read(p) }

// Write sends p. After an error, that of a deadline too, nothing more can be sent.
func (c *Conn) Write(p []byte) (int, error) { return c.out.write(p) }

// CloseWrite tells the other end that no more comes.
func (c *Conn) CloseWrite() error { return c.out.bye() }

// Close tells the other end, unless a write is under way, and closes the connection.
func (c *Conn) Close() error {
	var said error
	if c.out.mu.TryLock() {
		c.out.mu.Unlock()
		_ = c.raw.SetWriteDeadline(time.Now().Add(farewell)) // for a write that begins meanwhile
		said = c.out.bye()
	}
	closed := c.raw.Close()
	c.out.fail(net.ErrClosed)
	return cmp.Or(closed, said)
}

// refusal tells the other end what is wrong with what it sent, and returns that as an error.
func (w *writer) refusal(a tls.AlertError) error {
	err := &net.OpError{Op: "local error", Err: a} // as in package tls
	_ = w.alert(a)                                 // where it cannot be told, the end of the connection tells
	w.fail(err)
	return err
}
