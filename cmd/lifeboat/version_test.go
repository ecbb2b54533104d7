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

func TestBuildName(t *testing.T) {
	for want, b := range map[string]build{
		"v1.2.3":                      {Version: "v1.2.3", Revision: "0123456789abcdef"},
		"devel":                       {Version: "devel"},
		"devel+0123456789ab":          {Version: "devel", Revision: "0123456789abcdef"},
		"devel+0123456789ab-modified": {Version: "devel", Revision: "0123456789abcdef", Modified: true},
	} {
		if got := b.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
