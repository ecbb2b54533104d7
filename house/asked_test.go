package house_test

import (
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// forUsers are the packages whose exported names are for programs of users.
var forUsers = []string{"api", "client"}

// unasked are the names that stay although only tests use them, or no other package does, and why.
var unasked = map[string]string{
	"(*coordinator/raftstore.Store).DB":         "tests look into the file, and fill it up",
	"(*migration/receiver.removal).DropGhosts":  "as UnpackNow",
	"(*migration/receiver.unpackers).UnpackNow": "a step of Run, for the stories of package migration",
	"(*migration/vault.Segment).WriteBy":        "tests have its disk full, or hang",
	"preemption.NewAzure":                       "as NewEC2, which tests of other packages ask for",
	"preemption.NewGCE":                         "as NewEC2",
}

// A name that no other package uses is not exported, and a function that only tests call does not exist. Tests of other packages may
// use what is exported: they have no other way.
func TestEveryNameIsAskedFor(t *testing.T) {
	packages, info := typed(t)
	fset := parsed(t)[0].fset
	home := func(at token.Pos) string {
		return path.Join(module, path.Dir(strings.TrimPrefix(fset.File(at).Name(), root)))
	}
	used, abroad := map[types.Object]bool{}, map[types.Object]bool{} // used: outside of its own body; abroad: by other packages
	askAbroad := func(o types.Object) {
		abroad[o] = true
		eachNamed(o.Type(), func(typ types.Object) { abroad[typ] = true })
	}
	for id, o := range info.Uses {
		if f, ok := o.(*types.Func); ok {
			if o = f.Origin(); f.Scope() != nil && f.Scope().Contains(id.Pos()) {
				continue
			}
		}
		used[o] = true
		if o.Pkg() != nil && o.Pkg().Path() != home(id.Pos()) {
			askAbroad(o)
		}
	}
	inTests := selectedInTests(t)
	for _, o := range info.Defs {
		if o == nil || !o.Exported() {
			continue
		}
		if field, ok := o.(*types.Var); ok && field.IsField() || inTests[o.Pkg().Path()][o.Name()] || unasked[fullName(o)] != "" {
			askAbroad(o)
		}
	}
	product := map[*types.Package]bool{}
	reach(packages[module+"/cmd/lifeboat"], product)
	interfaces := interfacesByMethod(packages, info)
	for id, o := range info.Defs {
		if o == nil || !product[o.Pkg()] || strings.HasSuffix(o.Pkg().Path(), "fake") {
			continue
		}
		f, isFunc := o.(*types.Func)
		typ, _ := types.Unalias(o.Type()).(*types.Named)
		switch {
		case isFunc && (o.Name() == "main" || o.Name() == "init" || satisfies(f, interfaces)):
		case !isFunc && o.Parent() != o.Pkg().Scope():
		case unasked[fullName(o)] != "", o.Exported() && slices.Contains(forUsers, part(o.Pkg().Path())):
		case isFunc && !used[o]:
			t.Errorf("%s: only tests call %s", fset.Position(id.Pos()), fullName(o))
		case !o.Exported(), abroad[o], types.IsInterface(o.Type()):
		case typ != nil && typ.Obj().Pkg() == o.Pkg() && abroad[typ.Obj()]: // a constant of an exported type
		default:
			t.Errorf("%s: no other package asks for %s", fset.Position(id.Pos()), fullName(o))
		}
	}
}

func fullName(o types.Object) string {
	if f, ok := o.(*types.Func); ok {
		return strings.ReplaceAll(f.FullName(), module+"/", "")
	}
	return o.Name()
}

// selectedInTests returns for each package the names behind a dot in the tests that import it.
func selectedInTests(t *testing.T) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, s := range parsed(t) {
		if !s.isTest() {
			continue
		}
		names := map[string]bool{}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				names[sel.Sel.Name] = true
			}
			return true
		})
		for _, spec := range s.ast.Imports {
			imported := strings.Trim(spec.Path.Value, `"`)
			if all[imported] == nil {
				all[imported] = map[string]bool{}
			}
			maps.Copy(all[imported], names)
		}
	}
	return all
}

// eachNamed yields the named types within a type, except those of a struct's fields.
func eachNamed(typ types.Type, yield func(types.Object)) {
	switch typ := typ.(type) {
	case *types.Named:
		yield(typ.Origin().Obj())
	case *types.Alias:
		yield(typ.Obj())
		eachNamed(types.Unalias(typ), yield)
	case interface{ Elem() types.Type }:
		eachNamed(typ.Elem(), yield)
	case *types.Tuple:
		for v := range typ.Variables() {
			eachNamed(v.Type(), yield)
		}
	case *types.Signature:
		eachNamed(typ.Params(), yield)
		eachNamed(typ.Results(), yield)
		if typ.Recv() != nil {
			eachNamed(typ.Recv().Type(), yield)
		}
	}
}

// satisfies reports whether f is a method of an interface. Package errors calls Is and Unwrap through interfaces without a name.
func satisfies(f *types.Func, interfaces map[string][]*types.Interface) bool {
	if f.Signature().Recv() == nil {
		return false
	}
	typ := f.Signature().Recv().Type()
	if _, ok := typ.(*types.Pointer); !ok {
		typ = types.NewPointer(typ)
	}
	return f.Name() == "Is" || f.Name() == "Unwrap" || types.IsInterface(f.Signature().Recv().Type()) ||
		slices.ContainsFunc(interfaces[f.Name()], func(i *types.Interface) bool { return types.Implements(typ, i) })
}

// interfacesByMethod returns the interfaces in our packages, and the named ones in the packages that these import, by their methods.
func interfacesByMethod(packages map[string]*types.Package, info *types.Info) map[string][]*types.Interface {
	all := map[string][]*types.Interface{"Error": {types.Universe.Lookup("error").Type().Underlying().(*types.Interface)}}
	add := func(typ types.Type) {
		if i, ok := typ.Underlying().(*types.Interface); ok {
			for m := range i.Methods() {
				all[m.Name()] = append(all[m.Name()], i)
			}
		}
	}
	reached := map[*types.Package]bool{}
	for _, p := range packages {
		reach(p, reached)
	}
	for p := range reached {
		for _, name := range p.Scope().Names() {
			if typ, ok := p.Scope().Lookup(name).(*types.TypeName); ok {
				add(typ.Type())
			}
		}
	}
	for _, o := range info.Defs {
		if f, ok := o.(*types.Func); ok && f.Signature().Recv() != nil {
			add(f.Signature().Recv().Type())
		}
	}
	return all
}

// reach adds p and all packages that it imports, directly or not.
func reach(p *types.Package, to map[*types.Package]bool) {
	if !to[p] {
		to[p] = true
		for _, imported := range p.Imports() {
			reach(imported, to)
		}
	}
}

// typed checks the types of all our packages, without their tests. Other people's packages are read from the compiler's export data.
func typed(t *testing.T) (packages map[string]*types.Package, info *types.Info) {
	t.Helper()
	files := map[string]source{}
	for _, s := range parsed(t) {
		files[s.path] = s
	}
	isOurs := func(path string) bool { return strings.HasPrefix(path, module+"/") }
	ours := slices.DeleteFunc(goList(t, "-deps", "./..."), func(p listed) bool { return !isOurs(p.ImportPath) })
	export := []string{"-export"}
	for _, p := range ours {
		export = append(export, slices.DeleteFunc(p.Imports, isOurs)...)
	}
	compiled := map[string]string{}
	for _, p := range goList(t, export...) {
		compiled[p.ImportPath] = p.Export
	}
	theirs := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) })
	packages = map[string]*types.Package{}
	info = &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importerFunc(func(path string) (*types.Package, error) {
		if isOurs(path) {
			return packages[path], nil
		}
		return theirs.Import(path)
	})}
	for _, p := range ours {
		var trees []*ast.File
		for _, name := range p.GoFiles {
			trees = append(trees, files[path.Join(strings.TrimPrefix(p.ImportPath, module+"/"), name)].ast)
		}
		var err error
		if packages[p.ImportPath], err = conf.Check(p.ImportPath, parsed(t)[0].fset, trees, info); err != nil {
			t.Fatal(err)
		}
	}
	return packages, info
}

type importerFunc func(string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }
