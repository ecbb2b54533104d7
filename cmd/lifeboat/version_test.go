package main

import (
	"strings"
	"testing"
)

// A package is built of a source that may have no git: its machines tell the version of the package, and not "devel".
func TestVersionIsTheOneGiven(t *testing.T) {
	defer func(was string) { release = was }(release)
	release = "1.2.3"
	if got := thisBuild().line(); !strings.HasPrefix(got, "lifeboat 1.2.3 (go") {
		t.Errorf("got %q", got)
	}
}
