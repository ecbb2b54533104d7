package house_test

import (
	"slices"
	"strings"
	"testing"
)

// layers are the rows of the project, lowest first. A package may import packages of lower rows, and those of its own top
// directory. Siblings of a row do not import each other; the row above introduces them.
var layers = [][]string{
	{"accepted", "api", "await", "certs", "config", "durable", "figures", "localsock", "pages", "pipenet", "systemd"},
	{"attest", "client", "disks", "enrol", "fallback", "heartbeat", "migration", "preemption", "workloads"},
	{"agent", "coordinator", "sidecar"},
	{"dev"},
	{"cmd"},
	{"bench", "clustertest", "e2e", "examples", "interop"}, // they test or use the product from outside; nothing imports them
}

// lines are the packages of a large part, lowest first: each may import only those before it.
var lines = map[string][]string{
	"cmd":         {"cmd/lifeboat/show", "cmd/lifeboat"},
	"coordinator": {"coordinator/blockmap", "coordinator/hosts", "coordinator/registry", "coordinator/raftstore", "coordinator"},
	"migration":   {"migration/fields", "migration/diskio", "migration/inventory", "migration/wire/vaes", "migration/wire/record", "migration/wire", "migration/manifest", "migration/plan", "migration/catalog", "migration/vault", "migration/lastresort", "migration/reading", "migration/nodetest", "migration/receiver", "migration"},
}

func TestLargePackagesAreLines(t *testing.T) {
	for of, line := range lines {
		at := func(importPath string) int { return slices.Index(line, strings.TrimPrefix(importPath, module+"/")) }
		for _, p := range goList(t, "./"+of+"/...") {
			for _, imported := range p.Imports {
				if from, to := at(p.ImportPath), at(imported); strings.HasPrefix(imported, module+"/"+of) && to >= from {
					t.Errorf("%s imports %s, which does not stand before it in the line", p.ImportPath, imported)
				}
			}
		}
	}
}

// outside are the packages that may import any package: they have only tests.
var outside = []string{"house"}

func TestImportsPointDownwards(t *testing.T) {
	for _, p := range goList(t, "./...") {
		from := part(p.ImportPath)
		if slices.Contains(outside, from) {
			continue
		}
		row := rowOf(from)
		if row < 0 {
			t.Errorf("%s belongs to no layer: say in layers_test.go where it stands", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			if !strings.HasPrefix(imported, module+"/") {
				continue
			}
			to := part(imported)
			switch below := rowOf(to); {
			case to == from:
			case below < 0:
				t.Errorf("%s imports %s, which belongs to no layer", p.ImportPath, imported)
			case below == row:
				t.Errorf("%s imports its sibling %s: the layer above introduces them to each other", p.ImportPath, imported)
			case below > row:
				t.Errorf("%s imports %s, which stands above it", p.ImportPath, imported)
			}
		}
	}
}

// part is the top directory that a package is in: preemption for preemption/ec2fake.
func part(importPath string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(importPath, module+"/"), "/")
	return first
}

func rowOf(part string) int {
	return slices.IndexFunc(layers, func(row []string) bool { return slices.Contains(row, part) })
}

// A template calls methods by name, so a program with templates keeps every exported method: text/template in one verb
// made the binary larger by a third, most of it methods of the cloud's library that nothing calls.
func TestNobodyImportsTemplates(t *testing.T) {
	for _, p := range goList(t, "./...") {
		for _, imported := range p.Imports {
			if imported == "text/template" || imported == "html/template" {
				t.Errorf("%s imports %s: the linker would drop no method any more", p.ImportPath, imported)
			}
		}
	}
}
