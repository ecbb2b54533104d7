package coordinator

import (
	"testing"
	"time"
	"unique"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/blockmap"
)

// A node has one full report under way: a new one ends an older one that hangs, and drops what that said. Else one node could fill the memory
// with any number of them.
func TestOneFullReportOfANodeAtATime(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		stream, err := a.ReportBlocks(a.Context())
		if err != nil {
			v.Fatal(err)
		}
		say := func(id string) {
			if err := stream.Send(&api.ReportBlocksRequest{Node: "a", Incarnation: a.incarnation, Full: true, Landed: []*api.HeldBlock{{Id: id, Bytes: 7}}}); err != nil {
				v.Fatal(err)
			}
		}
		say("s/-/hangs")
		time.Sleep(time.Second)
		a.report(true, "s/-/x")
		say("s/-/late")
		if _, err := stream.CloseAndRecv(); status.Code(err) != codes.Aborted {
			v.Errorf("got error %v, want Aborted", err)
		}
		v.located("s/-/x", "held", "a")
	})
}

func TestReportThatHangsTakesNoMemory(t *testing.T) {
	var under asides
	hangs := under.begin("a")
	if _, err := hangs.Hear("a", []blockmap.Word{{Key: blockmap.KeyOf("s/-/x"), What: blockmap.Landed{From: unique.Make("from-0")}}}); err != nil || hangs.Located() != 1 {
		t.Fatalf("got %d blocks, %v", hangs.Located(), err)
	}
	under.begin("b")
	if !under.is("a", hangs) {
		t.Error("another node's report ended it")
	}
	next := under.begin("a")
	if hangs.Located() != 0 || under.is("a", hangs) || !under.is("a", next) {
		t.Errorf("%d blocks of it are kept; is it under way: %t; the next one: %t", hangs.Located(), under.is("a", hangs), under.is("a", next))
	}
	under.end("a", hangs)
	if !under.is("a", next) {
		t.Error("the end of the one that hung ended the next")
	}
}
