package registry

import (
	"fmt"
	"slices"
	"testing"
)

// What is kept of one node's manifests is bounded, and the newest is always kept.
func TestManifestsOfOneNodeAreBounded(t *testing.T) {
	m := New()
	m.keep(&ManifestRef{File: "other", Node: "host-b", Lost: 1})
	for i := range 5 {
		m.keep(&ManifestRef{File: fmt.Sprint("lost ", i), Node: "host-a", Incident: fmt.Sprint(i), Lost: MaxEntries/2 + 1})
	}
	for i := range 5 {
		m.keep(&ManifestRef{File: fmt.Sprint("large ", i), Node: "host-c", Incident: fmt.Sprint(i), Bytes: MaxManifest/2 - 1})
	}
	var files []string
	for _, r := range m.Manifests {
		files = append(files, r.File)
	}
	if want := []string{"other", "lost 4", "large 3", "large 4"}; !slices.Equal(files, want) {
		t.Errorf("got %q, want %q", files, want)
	}
}
