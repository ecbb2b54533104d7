package coordinator

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

func TestEventsAreFollowed(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		stream, err := v.operator().Events(v.Context(), &api.EventsRequest{Follow: true})
		if err != nil {
			v.Fatal(err)
		}
		next := func(want string) uint64 {
			v.Helper()
			e, err := stream.Recv()
			if err != nil || e.Type != want || e.Node != "a" || !e.Time.IsValid() {
				v.Fatalf("got %v, %v, want %s", e, err, want)
			}
			return e.Index
		}
		next(registry.EventRegistered)
		v.order(time.Hour, "a")
		at := next(registry.EventDecommissioning)
		v.stop()
		_, err = stream.Recv()
		v.refused(err, codes.Unavailable, "follow again")
		v.start()

		stream, err = v.operator().Events(v.Context(), &api.EventsRequest{After: at - 1})
		if err != nil {
			v.Fatal(err)
		}
		if got := next(registry.EventDecommissioning); got != at {
			v.Errorf("got index %d after a restart, want %d", got, at)
		}
		if _, err := stream.Recv(); err != io.EOF {
			v.Errorf("got %v, want the end", err)
		}
		s, err := v.operator().GetStatus(v.Context(), &api.GetStatusRequest{})
		if err != nil || !s.Leader || s.Nodes["DECOMMISSIONING"] != 1 || s.LastIndex != at || s.Version != "test" {
			v.Errorf("got %v, %v", s, err)
		}
	})
}

func TestPages(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.status.Disks = []*api.Disk{{Path: "/mnt/d0", Health: "well", TotalBytes: 10, UsableBytes: 5}}
		a.register()
		a.notice("inc1", 90*time.Second)
		a.announce()
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			if code, body := v.get(path, nil); code != http.StatusOK {
				v.Errorf("%s: got %d %s", path, code, body)
			}
		}
		if _, body := v.get("/metrics", nil); !strings.Contains(body, "lifeboat_coordinator_events_total{type=\"NodeLost\"} 0\n") {
			t.Error("there is no count of lost nodes before the first is lost: an alert on its rise misses that one")
		}
		if _, body := v.get("/metrics", nil); !strings.Contains(body, `lifeboat_build_info{version="test"} 1`) {
			v.Error("metrics do not say which version this is")
		}
		if _, body := v.get("/metrics", nil); !strings.Contains(body, `lifeboat_coordinator_nodes{state="DECOMMISSIONING"} 1`) {
			v.Errorf("metrics do not count the node: %s", body)
		}
		for _, path := range []string{"/nodes", "/nodes/a", "/events"} {
			if code, body := v.get(path, nil); code != http.StatusUnauthorized || strings.Contains(body, "7412") {
				v.Errorf("%s without a certificate: got %d %s", path, code, body)
			}
			if code, _ := v.get(path, &certs.Name{Role: certs.RoleCoordinator, Name: "c"}); code != http.StatusForbidden {
				v.Errorf("%s as a coordinator: got %d", path, code)
			}
		}
		app := &certs.Name{Role: certs.RoleApp, Name: "app"}
		if code, _ := v.get("/nodes/b", app); code != http.StatusNotFound {
			v.Errorf("an unknown node: got %d", code)
		}
		_, one := v.get("/nodes/a", app)
		_, all := v.get("/nodes", app)
		if all != "["+strings.TrimSpace(one)+"]\n" {
			v.Errorf("got %s, want the one node in a list: %s", all, one)
		}
		var keys map[string]any
		if err := json.Unmarshal([]byte(one), &keys); err != nil {
			v.Fatal(err)
		}
		want := `name id state sub_state schedulable deactivated maintenance excluded notice deadline remaining_seconds peer_address incarnation disks last_heartbeat_seconds`
		for k := range strings.FieldsSeq(want) {
			if _, ok := keys[k]; !ok {
				v.Errorf("key %s is missing in %s", k, one)
			}
		}
		if keys["remaining_seconds"] != 90.0 || keys["maintenance"] != "UP" || keys["notice"].(map[string]any)["kind"] != "terminate" {
			v.Errorf("got %s", one)
		}
	})
}

func TestEventStreamOverHTTP(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		got := make(chan string)
		go func() {
			_, body := v.get("/events?after=0", &certs.Name{Role: certs.RoleApp, Name: "app"})
			got <- body
		}()
		time.Sleep(50 * time.Second) // longer than any limit on ordinary requests
		a.live(1)
		v.order(time.Hour, "a")
		time.Sleep(time.Second)
		v.stop()
		body := <-got
		for _, want := range []string{"id: 2.1\nevent: NodeRegistered\ndata: {\"index\":1,", "event: NodeLost\n", "\nid: 2.2\n:\n\n", "event: NodeDecommissioning\n"} {
			if !strings.Contains(body, want) {
				v.Errorf("got %q, want %q in it", body, want)
			}
		}
	})
}

// The list of a large fleet is compressed for clients that accept that.
func TestNodesOverHTTPArePacked(t *testing.T) {
	inTown(t, func(v *town) {
		for i := range 200 {
			v.agent(fmt.Sprintf("host-%d", i)).register()
		}
		app := &certs.Name{Role: certs.RoleApp, Name: "app"}
		_, plain := v.ask(http.MethodGet, "/nodes", app, http.Header{"Accept-Encoding": {"identity"}})
		_, packed := v.ask(http.MethodGet, "/nodes", app, http.Header{"Accept-Encoding": {"gzip, deflate, br"}})
		if len(packed) > len(plain)/5 {
			v.Errorf("got %d bytes of %d, want a fraction", len(packed), len(plain))
		}
		r, err := gzip.NewReader(strings.NewReader(packed))
		if err != nil {
			v.Fatal(err)
		}
		var nodes []api.NodeJSON
		if err := json.NewDecoder(r).Decode(&nodes); err != nil || len(nodes) != 200 {
			v.Errorf("got %d nodes, %v, want 200", len(nodes), err)
		}
		if err := json.Unmarshal([]byte(plain), &nodes); err != nil || len(nodes) != 200 {
			v.Errorf("got %d nodes unpacked, %v, want 200", len(nodes), err)
		}
	})
}
