package main

import (
	"strings"
	"testing"
)

// A package may be built from a source without git: its nodes report the package's version, and not "devel".
func TestVersionIsTheOneGiven(t *testing.T) {
	defer func(was string) { release = was }(release)
	release = "1.2.3"
	if got := thisBuild().line(); !strings.HasPrefix(got, "lifeboat 1.2.3 (go") {
		t.Errorf("got %q", got)
	}
}
