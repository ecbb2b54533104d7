package heartbeat

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lifeboat/lifeboat/api"
)

// Runs carry exactly the blocks that they were made of, whatever the ids look like.
func TestBlocksAreToldInRuns(t *testing.T) {
	ids := []string{"s/app/x", "s/app/dir/y", "s/app2/z", "s/app/é", "(2 blocks)", "s/app/last"}
	entries := func(yield func(*api.ManifestEntry, error) bool) {
		e := new(api.ManifestEntry) // each is valid until the next
		for i, id := range ids {
			e.Id, e.Bytes, e.Outcome, e.Peer = id, int64(i), "moved", fmt.Sprint("b", i/4)
			if !yield(e, nil) {
				return
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{}
		_, c, _ := holding(t, co, func() iter.Seq2[*api.HeldBlock, error] { return heldBlocks(ids[:4]...)() })
		time.Sleep(5 * time.Second)
		for _, id := range ids[4:] {
			c.Landed(&api.HeldBlock{Id: id, Bytes: 1, From: "x"})
		}
		time.Sleep(5 * time.Second)
		if got, want := co.heldIDs(), slices.Sorted(slices.Values(ids)); !slices.Equal(got, want) {
			t.Errorf("got %v held, want %v", got, want)
		}
		if err := c.Goodbye(t.Context(), &api.ManifestSummary{}, entries); err != nil {
			t.Fatal(err)
		}
		if got := read(co, func() []string { return co.entries }); !slices.Equal(got, ids) {
			t.Errorf("got entries %v, want %v", got, ids)
		}
		if runs := read(co, func() int { return co.runs }); runs >= 2*len(ids) {
			t.Errorf("%d blocks and entries were told in %d runs", 2*len(ids), runs)
		}
	})
}

// A message is full by the bytes of its ids too.
func TestMessagesAreBounded(t *testing.T) {
	long := "s/app/" + strings.Repeat("x", 4000)
	var said words
	for range 1000 {
		said.landed(&api.HeldBlock{Id: long, From: "x"})
	}
	for range 1000 {
		said.gone(long, "it was broken")
	}
	landed, gone, most := 0, 0, 0
	err := said.send(func(r *api.ReportBlocksRequest) error {
		for _, run := range r.Runs {
			landed += len(run.Blocks.Lengths)
		}
		gone, most = gone+len(r.Gone), max(most, proto.Size(r))
		return nil
	})
	if err != nil || landed != 1000 || gone != 1000 || most > 32<<10 {
		t.Errorf("got %d landed and %d gone, messages of up to %d bytes, %v, want 1000 of each in messages of 32 KiB", landed, gone, most, err)
	}
}

// A block that landed, went and landed again is told of in that order, even if nobody says why it went.
func TestMessagesKeepTheOrder(t *testing.T) {
	var said words
	for range 2 {
		said.landed(&api.HeldBlock{Id: "s/app/x", From: "x"})
		said.gone("s/app/x", "")
		said.gone("s/app/y", "")
	}
	said.gone("s/app/z", "it was broken")
	var got []string
	if err := said.send(func(r *api.ReportBlocksRequest) error {
		got = append(got, fmt.Sprint(len(r.Runs), r.Gone, r.Why))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	gone := "0 [s/app/x s/app/y]"
	if want := []string{"1 []", gone, "1 []", gone, "0 [s/app/z]it was broken"}; !slices.Equal(got, want) || said.count != 7 {
		t.Errorf("got %q of %d words, want %q of 7", got, said.count, want)
	}
}
