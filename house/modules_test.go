package house_test

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the list of linked modules anew")

// A new dependency is a line in a file, so that a reviewer sees it.
func TestLinkedModulesAreThoseOfTheLedger(t *testing.T) {
	const ledger = "testdata/modules.txt"
	linked := map[string]bool{}
	for _, arch := range []string{"amd64", "arm64"} {
		t.Setenv("GOOS", "linux")
		t.Setenv("GOARCH", arch)
		t.Setenv("CGO_ENABLED", "0") // as the binary is built
		for _, p := range goList(t, "-deps", "./cmd/lifeboat") {
			if p.Module != nil && p.Module.Path != module {
				linked[p.Module.Path] = true
			}
		}
	}
	got := strings.Join(slices.Sorted(maps.Keys(linked)), "\n") + "\n"
	if *update {
		if err := os.WriteFile(ledger, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(ledger)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(string(data))
	for m := range strings.FieldsSeq(got) {
		if !slices.Contains(want, m) {
			t.Errorf("the binary links %s, which house/%s does not name", m, ledger)
		}
	}
	for _, m := range want {
		if !linked[m] {
			t.Errorf("house/%s names %s, which the binary does not link", ledger, m)
		}
	}
	if t.Failed() {
		t.Log("go test ./house -run LinkedModules -update writes the list; the commit's text says what breaks without the module")
	}
}
