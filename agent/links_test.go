package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A link from /var/lib to the large disk is what many machines have, and that disk is what their store is on.
func TestCheckLinks(t *testing.T) {
	dir := t.TempDir()
	at := func(path string) string { return filepath.Join(dir, path) }
	for _, made := range []string{"disk/cache", "disk/vault", "disk/data", "other"} {
		if err := os.MkdirAll(at(made), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"lib": "disk", "alias": "disk/vault", "store": "other", "loop": "loop"} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		data, receive, fallback, store string
		want                           []string
	}{
		{data: "lib/data", store: "disk", want: []string{"data_dir"}},
		{data: "lib/not/there/yet", store: "disk", want: []string{"data_dir"}},
		{data: "lib", store: "disk/cache", want: []string{"data_dir"}},
		{data: "data", receive: "alias", store: "disk", want: []string{"receive.paths[0]"}},
		{data: "data", fallback: "lib/share", store: "disk", want: []string{"fallback.dir"}},
		{data: "lib/data", store: "disk/cache"},
		{data: "lib/data", receive: "alias", fallback: "nowhere", store: "store"},
		{data: "loop", store: "disk"}, // the start says why not
	} {
		cfg := Config{DataDir: at(c.data), Stores: []Store{{Paths: []string{at(c.store)}}}}
		if c.receive != "" {
			cfg.Receive.Paths = []string{at(c.receive)}
		}
		if c.fallback != "" {
			cfg.Fallback.Dir = at(c.fallback)
		}
		var got []string
		cfg.CheckLinks(t.Context(), func(key string, value any, bound, _ string) {
			if key != "stores[0].paths[0]" || value != at(c.store) {
				t.Errorf("%+v: reported %s %v", c, key, value)
			}
			var apart string
			if _, err := fmt.Sscanf(bound, "must be apart from %s", &apart); err != nil {
				t.Errorf("%+v: bound %q: %v", c, bound, err)
			}
			got = append(got, apart)
		})
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v, want %v", c, got, c.want)
		}
	}
}
