package receiver

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

func TestReceiverForgetsASenderThatFallsSilentInABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNode(t, "b")
		b.receive(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.receiver.Run(ctx) })
		ours, theirs := net.Pipe()
		began := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- b.receiver.Serve(ctx, theirs, "a") }()
		ours.Write(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: "a"}.Append(nil)))
		wire.NewReader(ours, wire.MaxPayload[wire.FrameGrant]).Next()
		o := wire.Opening{ID: "cache/-/x", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: "x", Bytes: 1 << 30}}}
		ours.Write(wire.AppendFrame(nil, wire.FrameOpen, 1, o.Append(nil)))
		err := <-ended
		if took := time.Since(began); err == nil || took > wire.SenderTimeout*3/2 {
			t.Errorf("ended with %v after %v, want a fault after %v", err, took, wire.SenderTimeout)
		}
		if b.receiver.grant(false).RoomBytes != plenty("") {
			t.Errorf("%d bytes of room are still promised", plenty("")-b.receiver.grant(false).RoomBytes)
		}
		cancel()
		running.Wait()
	})
}

func TestReceiverHangsUpOnWhoDoesNotGreet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNode(t, "b")
		b.receive(t)
		_, theirs := net.Pipe()
		began := time.Now()
		if err := b.receiver.Serve(t.Context(), theirs, "a"); err == nil || time.Since(began) > 2*greetingTimeout {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

func TestReceiverRefusesStreams(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*node)
		says string
		want string
	}{
		"another node's name":  {func(*node) {}, "mallory", "certificate is for"},
		"not admitted":         {func(n *node) { n.Refuse = "under notice" }, "a", "under notice"},
		"more streams than it": {func(n *node) { n.receiver.budget.Streams = 0 }, "a", "busy"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newNode(t, "b")
			b.receive(t)
			c.set(b)
			ours, theirs := net.Pipe()
			go b.receiver.Serve(t.Context(), theirs, "a")
			ours.Write(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: c.says}.Append(nil)))
			f, err := wire.NewReader(ours, wire.MaxPayload[wire.FrameRefuse]).Next()
			if err != nil || f.Type != wire.FrameRefuse {
				t.Fatalf("got frame %d, %v, want a refusal", f.Type, err)
			}
			if r, err := wire.ParseRefuse(f.Payload); err != nil || !strings.Contains(r.Reason, c.want) {
				t.Errorf("got %+v, %v, want %q", r, err, c.want)
			}
			ours.Close()
		})
	}
}

// A sender that is granted a stream hears whether other nodes have one, too.
func TestReceiverSaysThatItServesOthers(t *testing.T) {
	b := newNode(t, "b")
	b.receive(t)
	var serving sync.WaitGroup
	defer serving.Wait()
	for _, c := range []struct {
		node   string
		shared bool
	}{{"a", false}, {"a", false}, {"c", true}, {"a", true}} {
		ours, theirs := net.Pipe()
		defer ours.Close()
		serving.Go(func() { b.receiver.Serve(t.Context(), theirs, c.node) })
		ours.Write(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: c.node}.Append(nil)))
		f, err := wire.NewReader(ours, wire.MaxPayload[wire.FrameGrant]).Next()
		if err != nil || f.Type != wire.FrameGrant {
			t.Fatalf("got frame %d, %v, want a grant", f.Type, err)
		}
		if g, err := wire.ParseGrant(f.Payload); err != nil || g.Shared != c.shared {
			t.Errorf("%s: got %+v, %v, want shared %t", c.node, g, err, c.shared)
		}
	}
}

// A receiver that is told to stop still makes complete blocks durable, and sends their receipts.
func TestReceiverStoppedStillGivesItsReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNode(t, "b")
		b.receive(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.receiver.Run(ctx) })
		ours, theirs := net.Pipe()
		running.Go(func() { b.receiver.Serve(ctx, theirs, "a") })
		ours.Write(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: "a"}.Append(nil)))
		replies := wire.NewReader(ours, wire.MaxPayload[wire.FrameReceipts])
		replies.Next()
		ours.Write(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
		cancel()
		f, err := replies.Next()
		if err != nil {
			t.Fatal(err)
		}
		if vs, err := wire.ParseVerdicts(f.Payload); err != nil || len(vs) != 1 || vs[0].Code != wire.VerdictDurable {
			t.Errorf("got %v, %v, want one receipt", vs, err)
		}
		ours.Close()
		running.Wait()
		if !bytes.Equal(b.Content(t, "cache/-/x"), contentOf("x", 1000)) {
			t.Error("content differs")
		}
	})
}

// A frame that a sender may not send ends its stream, and nothing of its block stays.
func TestReceiverRefusesWrongSequences(t *testing.T) {
	x := contentOf("x", 100)
	o := wire.Opening{ID: "cache/-/x", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: "x", Bytes: 100}}}
	open := wire.AppendFrame(nil, wire.FrameOpen, 1, o.Append(nil))
	data := wire.AppendFrame(nil, wire.FrameData, 1, x)
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, sent := range map[string][]byte{
		"data without open":     data,
		"open inside open":      join(open, open),
		"data of another":       join(open, wire.AppendFrame(nil, wire.FrameData, 2, x)),
		"too much data":         join(open, data, data),
		"short chunk":           join(open, wire.AppendFrame(nil, wire.FrameData, 1, x[:99])),
		"close too early":       join(open, wire.AppendFrame(nil, wire.FrameClose, 1, make([]byte, 16))),
		"close with wrong sum":  join(open, data, wire.AppendFrame(nil, wire.FrameClose, 1, make([]byte, 16))),
		"a receipt from sender": wire.AppendFrame(nil, wire.FrameReceipts, 0, wire.AppendVerdicts(nil, nil)),
		"cut inside a block":    join(open, data),
		"garbage":               []byte(strings.Repeat("GET / HTTP/1.1\r\n", 10)),
	} {
		t.Run(name, func(t *testing.T) {
			b := newNode(t, "b")
			b.receive(t)
			ours, theirs := net.Pipe()
			ended := make(chan error, 1)
			go func() { ended <- b.receiver.Serve(t.Context(), theirs, "a") }()
			ours.Write(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: "a"}.Append(nil)))
			wire.NewReader(ours, wire.MaxPayload[wire.FrameGrant]).Next()
			ours.Write(sent)
			ours.Close()
			if err := <-ended; err == nil {
				t.Error("it was taken")
			}
			for h := range b.Vault.Held() {
				t.Errorf("%s landed", h.ID)
			}
			if b.receiver.grant(false).RoomBytes != plenty("") || b.SegmentBytes(t) != 0 {
				t.Errorf("%d bytes promised, %d kept", plenty("")-b.receiver.grant(false).RoomBytes, b.SegmentBytes(t))
			}
		})
	}
}
