package registry

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A machine was stopped when it was drained, and is started again after it was forgotten: what it named as lost is there again.
func TestWhoComesBackForgottenBringsItsBlocks(t *testing.T) {
	for incarnation, back := range map[string]bool{"i1": true, "i2": false} {
		s := newStory(t)
		s.at(1).register("a", "i1")
		s.at(2).announce("a", "inc1", "stop", time.Minute)
		s.at(30).goodbye("a", "inc1", 3)
		s.at(ForgetAfter.Seconds()+60).plain(DoForget, "a")
		if _, known := s.Nodes["a"]; known || !s.InForce(s.Manifests[0]) {
			t.Fatalf("known %t, want it forgotten, and its blocks lost", known)
		}
		s.register("a", incarnation)
		if lost := s.InForce(s.Manifests[0]); lost == back {
			t.Errorf("incarnation %s: got lost %t, want %t", incarnation, lost, !back)
		}
	}
}

// What is kept of the fleet's manifests is bounded in number and in bytes, and the newest are kept.
func TestManifestsOfTheFleetAreBounded(t *testing.T) {
	for bytes, want := range map[int64]int{1000: keptManifests, keptBytes / 100: 100, MaxManifest: 2} {
		m := New()
		for i := range keptManifests + 10 {
			m.keep(&ManifestRef{Node: fmt.Sprint("host-", i), Bytes: bytes})
		}
		last := fmt.Sprint("host-", keptManifests+9)
		if got := m.Manifests; len(got) != want || got[len(got)-1].Node != last {
			t.Errorf("of %d bytes each: %d are kept up to %s, want %d up to %s", bytes, len(got), got[len(got)-1].Node, want, last)
		}
	}
}

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
