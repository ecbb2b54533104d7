package coordinator

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

var spark = certs.Name{Role: certs.RoleApp, Name: "spark"}

// page opens a stream of server-sent events and reads its head.
func (v *town) page(query string, headers ...string) (net.Conn, *bufio.Reader) {
	v.Helper()
	raw, err := v.dialPages(v.Context())
	if err != nil {
		v.Fatal(err)
	}
	conn := tls.Client(raw, certs.Dev(spark).Client([]string{"http/1.1"}, certs.Name{Role: certs.RoleCoordinator}))
	v.Cleanup(func() { raw.Close() })
	fmt.Fprintf(conn, "GET /events%s HTTP/1.1\r\nHost: c\r\n%s\r\n", query, strings.Join(append(headers, ""), "\r\n"))
	r := bufio.NewReader(conn)
	for line := ""; line != "\r\n"; {
		if line, err = r.ReadString('\n'); err != nil {
			v.Fatal(err)
		}
	}
	return conn, r
}

// ids reads the ids of n events.
func (v *town) ids(r *bufio.Reader, n int) (ids []string) {
	v.Helper()
	for id := ""; len(ids) < n; {
		line, err := r.ReadString('\n')
		if err != nil {
			v.Fatalf("after %v: %v", ids, err)
		}
		if after, ok := strings.CutPrefix(line, "id: "); ok {
			id = strings.TrimSpace(after)
		}
		if strings.HasPrefix(line, "data: ") {
			ids = append(ids, id)
		}
	}
	return ids
}

func TestPagesGoOnAndChoose(t *testing.T) {
	inTown(t, func(v *town) {
		for _, name := range []string{"a", "b"} {
			v.agent(name).register()
		}
		v.order(time.Hour, "a", "b")
		for _, c := range []struct {
			query  string
			header []string
			want   string
		}{
			{"", nil, "[2.1 2.2 2.3 2.4]"},
			{"?after=2.2", nil, "[2.3 2.4]"},
			{"?after=3", nil, "[2.4]"},
			{"?after=2.1", []string{"Last-Event-ID: 2.3"}, "[2.4]"},
			{"?type=NodeDecommissioning", nil, "[2.3 2.4]"},
			{"?type=NodeDecommissioning&type=NodeRegistered&node=b", nil, "[2.2 2.4]"},
			{"?after=2.9&node=b", nil, "[0 2.2 2.4]"}, // a gap comes first
		} {
			conn, r := v.page(c.query, c.header...)
			if got := fmt.Sprint(v.ids(r, strings.Count(c.want, " ")+1)); got != c.want {
				v.Errorf("%s %v: got %s, want %s", c.query, c.header, got, c.want)
			}
			conn.Close()
		}
		for _, path := range []string{"/events?after=yesterday", "/events?type=%1b", "/events?type=NodeLots", "/events?node=" + strings.Repeat("a", maxName+1)} {
			if code, body := v.get(path, &spark); code != 400 {
				v.Errorf("%s: got %d %s, want 400", path, code, body)
			}
		}
	})
}

// HEAD asks what GET would say before its first event, and follows nothing.
func TestHeadOfEvents(t *testing.T) {
	inTown(t, func(v *town) {
		raw, err := v.dialPages(v.Context())
		if err != nil {
			v.Fatal(err)
		}
		defer raw.Close()
		conn := tls.Client(raw, certs.Dev(spark).Client([]string{"http/1.1"}, certs.Name{Role: certs.RoleCoordinator}))
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		fmt.Fprint(conn, "HEAD /events HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\r\n")
		if head, err := io.ReadAll(conn); err != nil || !strings.Contains(string(head), "text/event-stream") {
			v.Errorf("got %q, %v, want an end", head, err)
		}
	})
}

func TestAppsMayFollow(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		app := api.NewOperatorClient(v.conn(certs.RoleApp, "spark"))
		stream, err := app.Events(v.Context(), &api.EventsRequest{})
		if err != nil {
			v.Fatal(err)
		}
		if e, err := stream.Recv(); err != nil || e.Type != registry.EventRegistered || e.Term == 0 {
			v.Errorf("got %v, %v", e, err)
		}
		if _, err := app.GetNode(v.Context(), &api.GetNodeRequest{Node: "a"}); err != nil {
			v.Error(err)
		}
		if r, err := app.ListNodes(v.Context(), &api.ListNodesRequest{}); err != nil || len(r.Nodes) != 1 {
			v.Errorf("got %v, %v", r, err)
		}
		if _, err := app.Locate(v.Context(), &api.LocateRequest{Id: "spark/app/x"}); err != nil {
			v.Error(err)
		}
		_, err = app.Decommission(v.Context(), &api.DecommissionRequest{Nodes: []string{"a"}})
		v.refused(err, codes.PermissionDenied, "may not call")
		blocks, err := app.ListBlocks(v.Context(), &api.ListBlocksRequest{})
		if err == nil {
			_, err = blocks.Recv()
		}
		v.refused(err, codes.PermissionDenied, "may not call")
	})
}

// A thousand subscribers that read nothing do not slow the others down, and are cut off.
func TestDeadSubscribers(t *testing.T) {
	inTown(t, func(v *town) {
		const dead = 1000
		for range dead {
			v.page("")
		}
		silent, err := v.operator().Events(v.Context(), &api.EventsRequest{Follow: true})
		if err != nil {
			v.Fatal(err)
		}
		a := v.agent("a")
		a.register()
		well, err := v.operator().Events(v.Context(), &api.EventsRequest{Follow: true})
		if err != nil {
			v.Fatal(err)
		}
		subscribers := func() int64 {
			v.Helper()
			synctest.Wait()
			s, err := v.operator().GetStatus(v.Context(), &api.GetStatusRequest{})
			if err != nil {
				v.Fatal(err)
			}
			return s.Subscribers
		}
		if got := subscribers(); got != dead+2 {
			v.Errorf("got %d subscribers, want %d", got, dead+2)
		}
		began := time.Now()
		for i := range 40 { // enough to fill what the kernel and gRPC take ahead
			if i%2 == 0 {
				v.order(time.Hour, "a")
			} else if _, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}}); err != nil {
				v.Fatal(err)
			}
		}
		for last := uint64(0); last < 41; {
			e, err := well.Recv()
			if err != nil {
				v.Fatal(err)
			}
			last = e.Index
		}
		if took := time.Since(began); took > time.Second {
			v.Errorf("one that reads waited %s for the others", took)
		}
		time.Sleep(2 * writePatience)
		if got := subscribers(); got != 2 {
			v.Errorf("got %d subscribers after %s, want the one that reads and the one whose stream has room", got, 2*writePatience)
		}
		if e, err := silent.Recv(); err != nil || e.Index != 1 {
			v.Errorf("one that reads later: got %v, %v", e, err)
		}
	})
}

// A call whose client does not read ends, although its Send is blocked.
func TestStuckCallEnds(t *testing.T) {
	inTown(t, func(v *town) {
		var names []string
		for i := range 10 {
			names = append(names, fmt.Sprint("node-", i))
			v.agent(names[i]).register()
		}
		stuck, err := v.operator().Events(v.Context(), &api.EventsRequest{Follow: true})
		if err != nil {
			v.Fatal(err)
		}
		reason := strings.Repeat("x", registry.MaxText)
		for i := range 40 { // more than a stream's window and gRPC's own queue
			if i%2 == 0 {
				_, err = v.operator().Decommission(v.Context(), &api.DecommissionRequest{Nodes: names, Reason: reason})
			} else {
				_, err = v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: names})
			}
			if err != nil {
				v.Fatal(err)
			}
		}
		time.Sleep(2 * writePatience)
		synctest.Wait()
		s, err := v.operator().GetStatus(v.Context(), &api.GetStatusRequest{})
		if err != nil || s.Subscribers != 0 {
			v.Fatalf("got %d subscribers, %v, want none", s.GetSubscribers(), err)
		}
		for err == nil {
			_, err = stuck.Recv()
		}
		v.refused(err, codes.DeadlineExceeded, "follow again")
	})
}

// The first landed blocks are told at once, later ones in sums of a second each, and the last ones too.
func TestBlocksMovedIsTold(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		stream, err := v.operator().Events(v.Context(), &api.EventsRequest{After: 1, Follow: true, Types: []string{evMoved}})
		if err != nil {
			v.Fatal(err)
		}
		next := func(place, blocks, bytes string) {
			v.Helper()
			e, err := stream.Recv()
			if err != nil {
				v.Fatal(err)
			}
			if got := api.PlaceOf(e).String(); got != place || e.Node != "a" || e.Data["from"] != "gone" || e.Data["blocks"] != blocks || e.Data["bytes"] != bytes {
				v.Errorf("got %s %v, want %s of %s blocks and %s bytes", got, e.Data, place, blocks, bytes)
			}
		}
		a.report(true, "spark/app/old") // was here before the coordinator was
		began := time.Now()
		a.report(false, "spark/app/x")
		next("2.1.1", "1", "7")
		for i := range 5 {
			a.report(false, fmt.Sprint("spark/app/", i), "spark/app/x") // the second is no news
		}
		next("2.1.2", "5", "35")
		if took := time.Since(began); took > 1100*time.Millisecond {
			v.Errorf("the rest was told after %s, want a second", took)
		}
		a.report(true, "spark/app/old", "spark/app/x", "spark/app/new")
		next("2.1.3", "1", "7")
	})
}
