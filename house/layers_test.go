package house_test

import (
	"slices"
	"strings"
	"testing"
)

// layers are the rows of the project, lowest first. A package may import those of lower rows and, within its row, only
// what lies below itself: siblings never know each other, the row above introduces them.
var layers = [][]string{
	{"accepted", "api", "certs", "config", "durable", "figures", "localsock", "pages", "pipenet", "systemd"},
	{"attest", "client", "disks", "enrol", "fallback", "heartbeat", "migration", "preemption", "workloads"},
	{"agent", "coordinator", "sidecar"},
	{"dev"},
	{"cmd"},
	{"bench", "clustertest", "e2e", "examples", "interop"}, // they look at the whole from outside; nothing imports them
}

// lines are the packages that make up a large one, lowest first: each may import only those before it.
var lines = map[string][]string{
	"cmd":         {"cmd/lifeboat/show", "cmd/lifeboat"},
	"coordinator": {"coordinator/blockmap", "coordinator/hosts", "coordinator/registry", "coordinator/raftstore", "coordinator"},
	"migration":   {"migration/fields", "migration/diskio", "migration/inventory", "migration/wire", "migration/manifest", "migration/plan", "migration/catalog", "migration/vault", "migration/lastresort", "migration/reading", "migration/nodetest", "migration/receiver", "migration"},
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

// outside may import any of ours in tests and none in the product.
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

// part is the folder of the checkout that a package lies in: preemption for preemption/ec2fake.
func part(importPath string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(importPath, module+"/"), "/")
	return first
}

func rowOf(part string) int {
	return slices.IndexFunc(layers, func(row []string) bool { return slices.Contains(row, part) })
}

// A template calls methods by name, so the linker keeps every exported method there is: text/template in one verb made the
// program larger by a third, most of it calls of the cloud's library that nobody makes.
func TestNobodyImportsTemplates(t *testing.T) {
	for _, p := range goList(t, "./...") {
		for _, imported := range p.Imports {
			if imported == "text/template" || imported == "html/template" {
				t.Errorf("%s imports %s: the linker would drop no method any more", p.ImportPath, imported)
			}
		}
	}
}
