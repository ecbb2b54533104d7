package coordinator

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/api"
)

// A machine with a slow disk is in the middle of a report when another machine comes under its name and makes a full report.
func TestReportOfAMachineThatWasReplaced(t *testing.T) {
	for name, ends := range map[string]bool{"it says more": false, "it is at its end": true} {
		t.Run(name, func(t *testing.T) {
			inTown(t, func(v *town) {
				old, is := v.agent("a"), v.agent("a")
				is.incarnation = "another machine"
				old.register()
				stream, err := old.ReportBlocks(v.Context())
				if err != nil {
					v.Fatal(err)
				}
				say := func(r *api.ReportBlocksRequest) {
					r.Node, r.Incarnation = "a", old.incarnation
					_ = stream.Send(r) // the answer says whether it was heard
				}
				say(&api.ReportBlocksRequest{Full: true})
				was := &api.ReportBlocksRequest{Landed: []*api.HeldBlock{{Id: "spark/app/old", Bytes: 7, From: "b"}}}
				if ends {
					say(was)
				}
				time.Sleep(time.Second)
				is.register()
				is.report(true, "spark/app/new")
				if !ends {
					say(was)
				}
				if _, err := stream.CloseAndRecv(); err == nil {
					v.Error("it was taken")
				}
				v.located("spark/app/new", "held", "a")
				v.located("spark/app/old", "unknown")
			})
		})
	}
}
