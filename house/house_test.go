// Package house_test tests the rules of the house that a compiler does not: which package may import which, which modules
// are linked into the binary, which calls are allowed where, and that what the documents say is true. It tests no
// behaviour, and it reads the source files, not what was built from them.
package house_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	root   = ".." // the checkout, seen from here
	module = "github.com/lifeboat/lifeboat"
)

// source is one Go file of the project.
type source struct {
	path      string // below the checkout, with slashes
	lines     int
	fset      *token.FileSet
	ast       *ast.File
	generated bool
}

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) at(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	p.Filename = s.path
	return p.String()
}

// imported is the name under which the file knows a package, or "" when it does not import it.
func (s source) imported(path string) string {
	for _, spec := range s.ast.Imports {
		if spec.Path.Value != `"`+path+`"` {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path[strings.LastIndexByte(path, '/')+1:]
	}
	return ""
}

// selects reports whether n is NAME of the package at path, and which name.
func (s source) selects(n ast.Node, path string) (name string, ok bool) {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok || s.imported(path) != id.Name {
		return "", false
	}
	return sel.Sel.Name, true
}

// sources parses every Go file of the checkout, those of tools included.
var sources = sync.OnceValues(func() ([]source, error) {
	var all []source
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if name := e.Name(); path != root && (name == "testdata" || name == "bin" || name[0] == '.') {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, path, data, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		all = append(all, source{filepath.ToSlash(rel), bytes.Count(data, []byte("\n")), fset, file, ast.IsGenerated(file)})
		return nil
	})
	return all, err
})

func parsed(t *testing.T) []source {
	t.Helper()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Fatalf("found %d Go files: the rules would hold for nothing", len(all))
	}
	return all
}

// listed is what `go list` says of a package.
type listed struct {
	ImportPath string
	Imports    []string
	GoFiles    []string
	Export     string // with -export: the file of the compiler's export data
	Module     *struct{ Path string }
}

func goList(t *testing.T, args ...string) (all []listed) {
	t.Helper()
	out := run(t, root, "go", append([]string{"list", "-json=ImportPath,Imports,GoFiles,Export,Module"}, args...)...)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func run(t *testing.T, dir, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, stderr.Bytes())
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
