package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

// A program gives its blocks values. The agent shows them, after a restart too, and takes no value of a call with a wrong
// one.
func TestProgramsSayWhatBlocksAreWorth(t *testing.T) {
	cfg := settings(t)
	cfg.Stores[0].Hints = []Hint{{Match: "hinted*", Value: time.Minute}}
	if err := os.MkdirAll(cfg.Stores[0].Paths[0], 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "hinted-1", "hinted-2"} {
		if err := os.WriteFile(filepath.Join(cfg.Stores[0].Paths[0], name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	value := func(id string, of time.Duration) *api.BlockValue {
		return &api.BlockValue{Id: id, Value: durationpb.New(of)}
	}
	want := map[string]time.Duration{"cache/-/a": 2 * time.Hour, "cache/-/b": 0, "cache/-/hinted-1": time.Second, "cache/-/hinted-2": time.Minute}
	shown := func(calls api.LocalClient) {
		t.Helper()
		stream, err := calls.ListBlocks(t.Context(), &api.ListBlocksRequest{})
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for {
			r, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range r.Blocks {
				seen++
				if got := b.GetValue().AsDuration(); got != want[b.Id] || (b.Value == nil) != (want[b.Id] == 0) {
					t.Errorf("%s is shown as worth %v, want %v", b.Id, b.Value, want[b.Id])
				}
			}
		}
		if seen != len(want) {
			t.Errorf("%d blocks are shown, want %d", seen, len(want))
		}
	}
	serve := func(with func(api.LocalClient)) {
		a, err := New(t.Context(), cfg, deps(cfg))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		over := make(chan error, 1)
		go func() { over <- a.Run(ctx) }()
		with(onSocket(t, cfg))
		stop()
		if err := <-over; err != nil {
			t.Errorf("got %v at the end, want nil", err)
		}
	}
	serve(func(calls api.LocalClient) {
		good := []*api.BlockValue{value("cache/-/a", 2*time.Hour), value("cache/-/b", time.Hour), value("cache/-/hinted-1", time.Second)}
		for _, r := range []*api.SetValuesRequest{{Values: good}, {Values: []*api.BlockValue{value("cache/-/b", 0)}}} {
			if _, err := calls.SetValues(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		shown(calls)
		for text, wrong := range map[string][]*api.BlockValue{
			"value 2 of 2: other/-/x: this node has no store other": {value("cache/-/b", time.Hour), value("other/-/x", time.Hour)},
			"value 2 of 2: cache/-/a is worth 1000h0m0s":            {value("cache/-/b", time.Hour), value("cache/-/a", 1000*time.Hour)},
			"value 2 of 2: it is no duration":                       {value("cache/-/b", time.Hour), {Id: "cache/-/a"}},
			"value 1 of 1: \"cache/-/../x\"":                        {value("cache/-/../x", time.Hour)},
			"0 values in one call":                                  nil,
			"1001 values in one call":                               make([]*api.BlockValue, 1001),
		} {
			_, err := calls.SetValues(t.Context(), &api.SetValuesRequest{Values: wrong})
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), text) {
				t.Errorf("got %v, want it refused with %s", err, text)
			}
		}
		if _, err := calls.SetValues(t.Context(), &api.SetValuesRequest{Check: true, Values: []*api.BlockValue{value("cache/-/b", time.Hour)}}); err != nil {
			t.Error(err)
		}
	})
	serve(shown)

	// A broken file of values must not keep the node from starting.
	if err := os.WriteFile(filepath.Join(cfg.DataDir, valuesFile), []byte("not what it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	serve(func(calls api.LocalClient) {
		_, err := calls.SetValues(t.Context(), &api.SetValuesRequest{Values: []*api.BlockValue{value("cache/-/a", time.Hour)}})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("got %v, want it to say that values cannot be kept", err)
		}
		want["cache/-/a"], want["cache/-/hinted-1"] = 0, time.Minute
		shown(calls)
	})
}
