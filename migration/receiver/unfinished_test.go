package receiver

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/nodetest"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// What came of a block whose stream broke is kept for its sender, for as long as that may come back, and for nobody else. Then
// its room is free again.
func TestWhatBrokeOffIsKeptForItsSender(t *testing.T) {
	content := contentOf("x", wire.ResumeLeast+4*wire.ChunkBytes)
	frames := blockFrames(1, "cache/-/x", content)
	other := blockFrames(1, "cache/-/x", content[:len(content)-1])
	cutAt := len(frames) - 2*(wire.ChunkBytes+wire.HeaderBytes) // amid a chunk
	const there = wire.ResumeLeast + 2*wire.ChunkBytes
	type step struct {
		n   *node
		ctx context.Context
		f   *nodetest.Disks

		late func() // waits until nothing is kept any more
	}
	whole := func(t *testing.T, s step) {
		if got := s.n.Content(t, "cache/-/x"); !bytes.Equal(got, content) {
			t.Error("it reads otherwise")
		}
	}
	for name, then := range map[string]func(t *testing.T, s step){
		"it comes back": func(t *testing.T, s step) {
			again := newSender(t, s.ctx, s.n.receiver, "a")
			again.Send(blockFrames(1, "cache/-/small", []byte("small")))
			again.WantReceipt()
			if has := again.Asks(2, frames); has != there {
				t.Fatalf("%d bytes are kept, want %d", has, there)
			}
			rest := blockFrames(2, "cache/-/x", content)
			again.Send(rest[len(rest)-2*(wire.ChunkBytes+wire.HeaderBytes)-wire.HeaderBytes-16:])
			again.WantReceipt()
			again.Conn.Close()
			whole(t, s)
		},
		"too late": func(t *testing.T, s step) {
			s.late()
			again := newSender(t, s.ctx, s.n.receiver, "a")
			s.f.WantNothingReserved(t)
			if has := again.Asks(1, frames); has != 0 {
				t.Errorf("%d bytes are kept", has)
			}
			again.Send(frames[len(wire.AppendFrame(nil, wire.FrameOpen, 1, firstPayload(t, frames))):])
			again.WantReceipt()
			again.Conn.Close()
			whole(t, s)
		},
		"another node": func(t *testing.T, s step) {
			of := newSender(t, s.ctx, s.n.receiver, "c")
			if has := of.Asks(1, frames); has != 0 {
				t.Errorf("%d bytes of another node's are given away", has)
			}
			of.Conn.Close()
		},
		"another version": func(t *testing.T, s step) {
			again := newSender(t, s.ctx, s.n.receiver, "a")
			if has := again.Asks(1, other); has != 0 {
				t.Errorf("%d bytes are taken for those of another version", has)
			}
			again.Conn.Close()
		},
		"from the beginning": func(t *testing.T, s step) {
			again := newSender(t, s.ctx, s.n.receiver, "a")
			again.Send(frames)
			again.WantReceipt()
			again.Conn.Close()
			whole(t, s)
		},
		"other bytes": func(t *testing.T, s step) {
			again := newSender(t, s.ctx, s.n.receiver, "a")
			if has := again.Asks(2, frames); has != there {
				t.Fatalf("%d bytes are kept, want %d", has, there)
			}
			changed := bytes.Clone(content)
			changed[0]++
			rest := blockFrames(2, "cache/-/x", changed)
			go again.Conn.Write(rest[len(rest)-2*(wire.ChunkBytes+wire.HeaderBytes)-wire.HeaderBytes-16:])
			if err := <-again.Over; !errors.Is(err, wire.ErrCorrupt) {
				t.Errorf("a mixture of two contents ends with %v", err)
			}
		},
		"nobody": func(t *testing.T, s step) {},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := onDisks(t, "b", nil, "d0")
			f.Give(n.More[0], wire.ResumeLeast*3/2) // too little for two such blocks
			synctest.Test(t, func(t *testing.T) {
				f.News = make(chan struct{})
				ctx, stop := n.receiving(t)
				s := newSender(t, ctx, n.receiver, "a")
				s.Send(frames[:cutAt])
				s.Conn.Close()
				synctest.Wait()
				then(t, step{n, ctx, f, func() { time.Sleep(keptFor + time.Second) }})
				synctest.Wait()
				if took := stop(); took > keptFor {
					t.Errorf("the receiver waits %v for who does not come back", took)
				}
				f.WantNothingReserved(t)
			})
			if name != "it comes back" {
				return
			}
			if err := errors.Join(n.Vault.Close(), os.Remove(filepath.Join(n.Vault.Dir, "catalog.db"))); err != nil {
				t.Fatal(err)
			}
			n.Open(t)
			whole(t, step{n: n}) // as the segments alone tell
		})
	}
}

func firstPayload(t *testing.T, frames []byte) []byte {
	f, err := wire.NewReader(bytes.NewReader(frames), wire.ChunkBytes).Next()
	if err != nil {
		t.Fatal(err)
	}
	return f.Payload
}

// A stream with too little of a block to keep is not waited for, though it was not over yet.
func TestNobodyWaitsForTooLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b")
		ctx, stop := n.receiving(t)
		content := contentOf("x", wire.ResumeLeast+1)
		frames := blockFrames(1, "cache/-/x", content)
		first := newSender(t, ctx, n.receiver, "a")
		first.Send(frames[:4*wire.ChunkBytes])
		synctest.Wait()
		again, began := newSender(t, ctx, n.receiver, "a"), time.Now()
		if has := again.Asks(1, frames); has != 0 {
			t.Fatalf("%d bytes are kept", has)
		}
		if took := time.Since(began); took >= claimPatience {
			t.Errorf("it took %v to say so", took)
		}
		again.Conn.Close()
		stop()
	})
}

// A sender that asks how much of a block is here, and reads no answers, has no more kept for it than one that reads no
// receipts.
func TestAnswersThatNobodyTakesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNode(t, "b")
		ctx, stop := b.receiving(t)
		defer stop()
		s := b.stream(t, ctx)
		defer s.Conn.Close()
		ask := wire.Opening{ID: "cache/-/x", Members: []wire.MemberSize{{Name: "x", Bytes: 1}}}.Append(nil)
		for asked := uint32(1); asked <= 2*maxUnread; asked++ {
			frames := wire.AppendFrame(wire.AppendFrame(nil, wire.FrameAgain, asked, ask), wire.FrameAbort, asked, nil)
			if _, err := s.Conn.Write(frames); err != nil {
				if err := <-s.Over; err == nil || !strings.Contains(err.Error(), "wait, at most") {
					t.Errorf("after %d questions: %v", asked, err)
				}
				return
			}
		}
		t.Errorf("%d questions, and it goes on", 2*maxUnread)
	})
}
