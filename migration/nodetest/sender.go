package nodetest

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Sender is one stream to a node, by hand.
type Sender struct {
	T    testing.TB
	Conn net.Conn
	In   *wire.Reader
	Over chan error
	// Grant is what it was told first.
	Grant wire.Grant
}

// Receiver is what a receiver is to a sender.
type Receiver interface {
	Run(ctx context.Context) error
	Serve(ctx context.Context, conn net.Conn, node string) error
}

// Stream begins the stream of a node.
func Stream(t testing.TB, ctx context.Context, to Receiver, node string) *Sender {
	t.Helper()
	ours, theirs := net.Pipe()
	s := &Sender{T: t, Conn: ours, In: wire.NewReader(ours, wire.MaxPayload[wire.FrameReceipts]), Over: make(chan error, 1)}
	go func() { s.Over <- to.Serve(ctx, theirs, node) }()
	s.Send(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: node}.Append(nil)))
	f, err := s.In.Next()
	if err != nil || f.Type != wire.FrameGrant {
		t.Fatalf("no grant: %v, %v", f.Type, err)
	}
	if s.Grant, err = wire.ParseGrant(f.Payload); err != nil {
		t.Fatal(err)
	}
	return s
}

// Send sends some bytes.
func (s *Sender) Send(b []byte) {
	s.T.Helper()
	if _, err := s.Conn.Write(b); err != nil {
		s.T.Fatal(err)
	}
}

// Begin sends a block but for its end, and returns when its landing has begun: the last byte is read only after that.
func (s *Sender) Begin(frames []byte) (rest []byte) {
	s.T.Helper()
	at := len(frames) - 40
	s.Send(frames[:at])
	s.Send(frames[at : at+1])
	return frames[at+1:]
}

// Next is the next frame that says more than that the receiver is there.
func (s *Sender) Next() (wire.Frame, error) { return more(s.In) }

func more(in *wire.Reader) (f wire.Frame, err error) {
	for f.Type == 0 || f.Type == wire.FrameAlive {
		if f, err = in.Next(); err != nil {
			break
		}
	}
	return f, err
}

// Verdict is the next one, whatever is heard before of work that goes on.
func (s *Sender) Verdict() wire.Verdict {
	s.T.Helper()
	for {
		f, err := s.Next()
		vs, broken := wire.ParseVerdicts(f.Payload)
		switch {
		case err != nil || broken != nil || len(vs) > 1:
			s.T.Fatalf("got %v, %v, %v, want one verdict", vs, err, broken)
		case len(vs) == 1:
			return vs[0]
		}
	}
}

// WantReceipt expects one.
func (s *Sender) WantReceipt() {
	s.T.Helper()
	if v := s.Verdict(); v.Code != wire.VerdictDurable {
		s.T.Errorf("transfer %d: %d %s, want a receipt", v.Transfer, v.Code, v.Reason)
	}
}

// WantRefusal expects one that says so.
func (s *Sender) WantRefusal(why string) {
	s.T.Helper()
	if v := s.Verdict(); v.Code == wire.VerdictDurable || !strings.Contains(v.Reason, why) {
		s.T.Errorf("transfer %d: %d %q, want it refused because %s", v.Transfer, v.Code, v.Reason, why)
	}
}

// Land has a receiver that does not run yet take blocks, and returns what became of each.
func Land(t testing.TB, to Receiver, frames ...[]byte) (said []wire.Verdict) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { to.Run(ctx) })
	ours, theirs := net.Pipe()
	running.Go(func() { to.Serve(ctx, theirs, "a") })
	ours.Write(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: "a"}.Append(nil)))
	replies := wire.NewReader(ours, wire.MaxPayload[wire.FrameReceipts])
	replies.Next()
	go func() {
		for _, f := range frames {
			ours.Write(f)
		}
	}()
	for len(said) < len(frames) {
		f, err := more(replies)
		if err != nil {
			t.Fatalf("after %d of %d verdicts: %v", len(said), len(frames), err)
		}
		vs, err := wire.ParseVerdicts(f.Payload)
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, vs...)
	}
	ours.Close()
	cancel()
	running.Wait()
	return said
}

// WantDurable fails the test for each that has no receipt.
func WantDurable(t testing.TB, said []wire.Verdict) {
	t.Helper()
	for _, v := range said {
		if v.Code != wire.VerdictDurable {
			t.Errorf("transfer %d: %d %s, want a receipt", v.Transfer, v.Code, v.Reason)
		}
	}
}

// Asks sends the opening of a block once more, and returns how much of it is there.
func (s *Sender) Asks(transfer uint32, frames []byte) int64 {
	s.T.Helper()
	f, err := wire.NewReader(bytes.NewReader(frames), wire.ChunkBytes).Next()
	if err != nil {
		s.T.Fatal(err)
	}
	s.Send(wire.AppendFrame(nil, wire.FrameAgain, transfer, f.Payload))
	if f, err = s.Next(); err != nil || f.Type != wire.FrameHave {
		s.T.Fatalf("got a frame of type %d, %v", f.Type, err)
	}
	h, err := wire.ParseHave(f.Payload)
	if err != nil || h.Transfer != transfer {
		s.T.Fatalf("got %+v, %v", h, err)
	}
	return h.Bytes
}

// AskToForget has a node ask for a version of a block to be forgotten, and returns the status of the answer.
func AskToForget(of interface {
	ServeForget(w http.ResponseWriter, req *http.Request, node string)
}, id inventory.BlockID, by, tag string) int {
	w, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodDelete, "/blocks/"+string(id), nil)
	if tag != "" {
		req.Header.Set("If-Match", tag)
	}
	of.ServeForget(w, req, by)
	return w.Code
}

// Run runs a receiver until stop, which says how long that took.
func Run(r Receiver) (ctx context.Context, stop func() time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	return ctx, func() time.Duration {
		began := time.Now()
		cancel()
		running.Wait()
		return time.Since(began)
	}
}
