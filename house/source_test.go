package house_test

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageHasOneComment(t *testing.T) {
	comments := map[string][]string{} // by package, the files that have one
	for _, s := range parsed(t) {
		name := path.Dir(s.path)
		if _, seen := comments[name]; !seen {
			comments[name] = nil
		}
		if s.ast.Doc != nil && !s.generated {
			comments[name] = append(comments[name], s.path)
		}
	}
	for name, files := range comments {
		switch {
		case len(files) == 0:
			t.Errorf("%s: no file has a package comment: what is it for, and what will it not do?", name)
		case len(files) > 1:
			t.Errorf("%s: package comments in %s: keep one", name, strings.Join(files, ", "))
		}
	}
}

// The comment of a function or type begins with its name. A rename can leave the old name there, where nobody looks.
func TestCommentsBeginWithTheName(t *testing.T) {
	for _, s := range parsed(t) {
		if s.isTest() || s.generated {
			continue
		}
		for _, d := range s.ast.Decls {
			var doc *ast.CommentGroup
			var name string
			switch d := d.(type) {
			case *ast.FuncDecl:
				doc, name = d.Doc, d.Name.Name
			case *ast.GenDecl:
				if typ, ok := d.Specs[0].(*ast.TypeSpec); ok && !d.Lparen.IsValid() {
					doc, name = d.Doc, typ.Name.Name
				}
			}
			if words := doc.Text(); words != "" && !regexp.MustCompile(`^`+name+`\b`).MatchString(words) {
				t.Errorf("%s: the comment of %s begins %.30q", s.at(d), name, words)
			}
		}
	}
}

// A package with many files says in its comment in which order to read them, in lines of "subject: file, file; file".
func TestLargePackagesHaveAMap(t *testing.T) {
	const most = 60 // so many files a reader understands without a map
	files, docs := map[string][]string{}, map[string]string{}
	for _, s := range parsed(t) {
		if name, ok := strings.CutSuffix(path.Base(s.path), ".go"); ok && name != "doc" && !s.generated && !strings.HasSuffix(name, "_test") {
			files[path.Dir(s.path)] = append(files[path.Dir(s.path)], name)
		}
		if s.ast.Doc != nil {
			docs[path.Dir(s.path)] = s.ast.Doc.Text()
		}
	}
	for dir, here := range files {
		_, table, found := strings.Cut(docs[dir], "The files by subject")
		if !found && len(here) <= most {
			continue
		}
		var named []string
		for line := range strings.Lines(table) {
			if subject, words, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(subject, "\t") {
				named = append(named, strings.FieldsFunc(words, func(r rune) bool { return strings.ContainsRune(",; \n", r) })...)
			}
		}
		for _, name := range here {
			if !slices.Contains(named, name) {
				t.Errorf("%s/%s.go is not among the files by subject of the package's comment: where would a reader look for it?", dir, name)
			}
		}
		for _, name := range named {
			if !slices.Contains(here, name) {
				t.Errorf("the comment of package %s names %s.go among its files, and there is none", dir, name)
			}
		}
	}
}

func TestFilesStayShort(t *testing.T) {
	const most = 600
	for _, s := range parsed(t) {
		if s.lines > most && !s.generated {
			t.Errorf("%s has %d lines, at most %d: it holds more than one idea", s.path, s.lines, most)
		}
	}
}

// The state machine is replicated: the leader puts the time into each command, and every replica must come to the same
// result.
func TestStateMachineIsPure(t *testing.T) {
	clock := []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}
	impure := []string{"math/rand", "math/rand/v2", "crypto/rand", "os", "net", "context"}
	found := 0
	for _, s := range parsed(t) {
		if path.Dir(s.path) != "coordinator/registry" && s.path != "coordinator/hosts/hosts.go" || strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		found++
		for _, p := range impure {
			if s.imported(p) != "" {
				t.Errorf("%s imports %s: commands in, events out, and nothing else", s.path, p)
			}
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if name, ok := s.selects(n, "time"); ok && slices.Contains(clock, name) {
				t.Errorf("%s: time.%s: the command carries the leader's time", s.at(n), name)
			}
			if _, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s: a goroutine in the state machine", s.at(n))
			}
			return true
		})
	}
	if found < 2 {
		t.Errorf("found %d files of the state machine: where is it?", found)
	}
}

func TestProductKeepsOffSharedState(t *testing.T) {
	// http.DefaultClient waits for ever, follows redirects, and obeys the environment's proxy.
	client := []string{"DefaultClient", "Get", "Head", "Post", "PostForm"}
	for _, s := range parsed(t) {
		if s.isTest() || s.generated {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if name, ok := s.selects(n, "net/http"); ok && slices.Contains(client, name) {
				t.Errorf("%s: http.%s: make a client with limits of its own", s.at(n), name)
			}
			if name, ok := s.selects(n, "os"); ok && name == "Exit" && path.Base(s.path) != "main.go" {
				t.Errorf("%s: os.Exit: return an error, main exits", s.at(n))
			}
			if f, ok := n.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: func init: nothing happens by importing", s.at(n))
			}
			return true
		})
	}
}
