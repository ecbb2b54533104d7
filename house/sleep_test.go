package house_test

import (
	"go/ast"
	"path"
	"strings"
	"testing"
)

// Tests sleep only in synctest bubbles: a sleep outside of one is a guess about the machine. The tests of e2e and interop and
// the benchmarks deal with real processes, and may wait for them.
func TestTestsSleepOnlyInBubbles(t *testing.T) {
	packages := map[string][]source{}
	for _, s := range parsed(t) {
		if top, _, _ := strings.Cut(s.path, "/"); s.isTest() && top != "e2e" && top != "interop" && top != "bench" {
			packages[path.Dir(s.path)] = append(packages[path.Dir(s.path)], s)
		}
	}
	for _, files := range packages {
		for _, where := range awakeSleeps(files) {
			t.Errorf("%s: time.Sleep outside of a synctest bubble", where)
		}
	}
}

// awakeSleeps follows the calls of a package's tests by name, and returns the sleeps in real time. A func that sleeps, or calls
// one that does, is a helper for bubbles; a test that calls it outside of the func that it gives to a bubble sleeps in real
// time. Methods are followed only if they take a *testing.T: others belong to fakes, which may be slow.
func awakeSleeps(files []source) (where []string) {
	type function struct {
		source
		*ast.FuncDecl
	}
	var all []function
	bubbles := map[string]bool{} // funcs that run their func argument in a bubble, or pass it to such a func
	for _, s := range files {
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			all = append(all, function{s, f})
		}
	}
	for before := -1; before != len(bubbles); {
		before = len(bubbles)
		for _, f := range all {
			if takesFunc(f.FuncDecl) && calls(f.Body, func(c *ast.CallExpr) bool { return isBubble(f.source, c, bubbles) }) {
				bubbles[f.Name.Name] = true
			}
		}
	}
	sleepers := map[string]string{} // the place of the sleep, by the func's name
	for before := -1; before != len(sleepers); {
		before = len(sleepers)
		for _, f := range all {
			if sleepers[f.Name.Name] != "" || f.Recv != nil && !takesT(f.FuncDecl) {
				continue
			}
			if at := awake(f.source, f.Body, bubbles, sleepers); at != "" {
				sleepers[f.Name.Name] = at
			}
		}
	}
	for _, f := range all {
		if f.Recv != nil {
			continue
		}
		for _, kind := range []string{"Test", "Fuzz", "Benchmark", "Example"} {
			if at := sleepers[f.Name.Name]; at != "" && strings.HasPrefix(f.Name.Name, kind) {
				where = append(where, at+" in "+f.Name.Name)
			}
		}
	}
	return where
}

// awake returns the place of a sleep in body that is not in the argument of a bubble; "": there is none.
func awake(s source, body ast.Node, bubbles map[string]bool, sleepers map[string]string) (at string) {
	ast.Inspect(body, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok || at != "" {
			return at == ""
		}
		if isBubble(s, c, bubbles) {
			return false
		}
		if name, ok := s.selects(c.Fun, "time"); ok && name == "Sleep" {
			at = s.at(c)
		} else {
			at = sleepers[called(c)]
		}
		return at == ""
	})
	return at
}

func isBubble(s source, c *ast.CallExpr, bubbles map[string]bool) bool {
	name, ok := s.selects(c.Fun, "testing/synctest")
	return ok && name == "Test" || bubbles[called(c)]
}

func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

func takesFunc(f *ast.FuncDecl) bool {
	for _, p := range f.Type.Params.List {
		if _, ok := p.Type.(*ast.FuncType); ok {
			return true
		}
	}
	return false
}

func takesT(f *ast.FuncDecl) bool {
	for _, p := range f.Type.Params.List {
		if star, ok := p.Type.(*ast.StarExpr); ok {
			if sel, ok := star.X.(*ast.SelectorExpr); ok && sel.Sel.Name == "T" {
				return true
			}
		}
	}
	return false
}

func calls(body ast.Node, which func(*ast.CallExpr) bool) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		found = found || ok && which(c)
		return !found
	})
	return found
}
