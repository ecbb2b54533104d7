package record

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/wire/vaes"
)

// mostRecords is how many records are sealed with one key. RFC 8446, section 5.5, permits 2^24.5 of full size.
const mostRecords = 1 << 24

// writer is the half that sends.
type writer struct {
	to     net.Conn
	most   int    // bytes that go out at once
	perKey uint64 // records: mostRecords

	mu sync.Mutex // the reading side sends alerts and answers, too
	half
	buf  []byte // sealed, and not sent yet
	said bool   // that no more comes
	err  error  // why nothing more can be sent
}

var errEnded = errors.New("it was said before that no more comes")

func (w *writer) write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && w.said {
		return 0, errEnded
	}
	for len(p) > 0 && w.err == nil {
		if w.seq >= w.perKey {
			w.renew(updateNotRequested)
		}
		text := p[:min(len(p), mostText)]
		w.seal(typeData, text)
		n, p = n+len(text), p[len(text):]
	}
	w.flush()
	if w.err != nil {
		return 0, w.err // of what is on its way it is not known what arrives
	}
	return n, nil
}

// seal adds a record to what is to be sent, and first sends what is there if both have no room together.
func (w *writer) seal(kind byte, text []byte) {
	sealed := len(text) + 1 + vaes.Overhead
	if len(w.buf)+headerBytes+sealed > w.most {
		w.flush()
	}
	if w.err != nil {
		return
	}
	if w.buf == nil {
		w.buf = make([]byte, 0, w.most)
	}
	at := len(w.buf)
	w.buf = append(w.buf, typeData, 3, 3)
	w.buf = binary.BigEndian.AppendUint16(w.buf, uint16(sealed))
	nonce := w.nonce()
	w.buf = w.key.Seal(w.buf, nonce[:], text, kind, w.buf[at:])
}

func (w *writer) flush() {
	if len(w.buf) > 0 && w.err == nil {
		_, w.err = w.to.Write(w.buf)
	}
	w.buf = w.buf[:0]
}

// renew says that what follows has a new key, and may wish that the other end does the same.
func (w *writer) renew(wish byte) {
	w.seal(typeHandshake, []byte{keyUpdate, 0, 0, 1, wish})
	next, err := w.next()
	if w.err == nil {
		w.half, w.err = next, err
	}
}

// answer takes a new key because the other end wishes so.
func (w *writer) answer() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renew(updateNotRequested)
	w.flush()
	return w.err
}

// farewell is how long to wait until the kernel has taken that no more comes. Package tls waits as long.
const farewell = 5 * time.Second

// bye says that no more comes, once.
func (w *writer) bye() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.said {
		return nil
	}
	w.said = true
	_ = w.to.SetWriteDeadline(time.Now().Add(farewell)) // if that fails, the connection is closed, and so does the rest
	w.seal(typeAlert, []byte{1, byte(closeNotify)})
	w.flush()
	return w.err
}

func (w *writer) alert(a tls.AlertError) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seal(typeAlert, []byte{2, byte(a)})
	w.flush()
	return w.err
}

// fail has all further writes fail, if they do not yet.
func (w *writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}
