package e2e_test

import (
	"debug/elf"
	"os"
	"strings"
	"testing"
)

// Package text/template calls methods by names that only data has. Where it is used, the linker keeps every method of every type, and the
// binary, which goes into images and into the memory of each host, is larger by a quarter.
func TestNoTemplatesAreInTheBinary(t *testing.T) {
	story(t)
	if os.Getenv("LIFEBOAT_E2E_BINARY") != "" {
		t.Skip("a binary of other making")
	}
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if strings.Contains(s.Name, "/template.(*state)") {
			t.Fatalf("%s is in the binary: go build -ldflags=-dumpdep says who asks for it", s.Name)
		}
	}
}
