package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

type kind string

const (
	empty   kind = "nothing"
	broken  kind = "broken" // its fault is reported already
	text    kind = "text"
	number  kind = "number"
	boolean kind = "true or false"
	list    kind = "list"
	mapping kind = "map of keys"
)

// node is a part of a file with its place, which it keeps when files are merged.
type node struct {
	kind    kind
	file    string
	line    int
	scalar  string
	items   []*node
	entries []entry
}

type entry struct {
	key   string
	line  int
	file  string
	value *node
}

func (n *node) entry(key string) *entry {
	for i := range n.entries {
		if n.entries[i].key == key {
			return &n.entries[i]
		}
	}
	return nil
}

// place finds the place of a key such as "stores[1].paths", or of the nearest section around it.
func (n *node) place(key string) (file string, line int) {
	file, line = n.file, n.line
	for _, step := range strings.FieldsFunc(key, func(r rune) bool { return r == '.' || r == '[' }) {
		if i, ok := strings.CutSuffix(step, "]"); ok {
			at, err := strconv.Atoi(i)
			if err != nil || at < 0 || at >= len(n.items) {
				return file, line
			}
			n = n.items[at]
			file, line = n.file, n.line
			continue
		}
		e := n.entry(step)
		if e == nil {
			return file, line
		}
		n, file, line = e.value, e.file, e.line
	}
	return file, line
}

// merge lays over on top of under.
func merge(under, over *node) *node {
	switch {
	case over.kind == empty && (under.kind == mapping || under.kind == list):
		return under // a section whose lines are all commented out counts as absent
	case under.kind != mapping || over.kind != mapping:
		return over
	}
	out := *under
	out.entries = append([]entry(nil), under.entries...)
	for _, e := range over.entries {
		if old := out.entry(e.key); old != nil {
			e.value = merge(old.value, e.value)
			*old = e
		} else {
			out.entries = append(out.entries, e)
		}
	}
	return &out
}

// replaced has a remark for each list of under that a list of over replaces.
func replaced(prefix string, under, over *node) (all []string) {
	for _, e := range over.entries {
		old := under.entry(e.key)
		switch {
		case old == nil:
		case old.value.kind == mapping && e.value.kind == mapping:
			all = append(all, replaced(prefix+e.key+".", old.value, e.value)...)
		case len(old.value.items) > 0 && e.value.kind == list:
			all = append(all, fmt.Sprintf("%s%s of %s:%d does not count: %s:%d has another list, and lists are not merged", prefix, e.key, old.file, old.line, e.file, e.line))
		}
	}
	return all
}

// parse reads one file. The tree is nil when the file is not YAML at all.
func parse(file string, data []byte) (*node, Faults) {
	r := reader{file: file}
	parsed, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		line, message := 0, err.Error()
		if e, ok := errors.AsType[yaml.Error](err); ok {
			line, message = lineOf(e.GetToken()), e.GetMessage()
		}
		remedy := ""
		if strings.Contains(message, "'\t'") {
			message, remedy = "a tab where a word should begin", "indent with blanks"
		}
		r.fault(line, "", "not YAML: "+printable(message), remedy)
		return nil, r.faults
	}
	root := &node{kind: mapping, file: file}
	found := false
	for _, doc := range parsed.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType || doc.Body.Type() == ast.CommentGroupType {
			continue
		}
		if doc.Body.Type() == ast.DirectiveType {
			r.fault(firstLine(doc.Body), "", "must have no directives", "remove the line")
			continue
		}
		if found {
			r.fault(firstLine(doc.Body), "", "must be one document", "remove the '---' or use conf.d")
			break
		}
		found = true
		if n := r.node("", doc.Body); n.kind == mapping {
			root = n
		} else if n.kind != empty && n.kind != broken {
			r.fault(n.line, "", "must be a map of keys, is "+article(n.kind), "")
		}
	}
	return root, r.faults
}

type reader struct {
	file   string
	faults Faults
}

func (r *reader) fault(line int, key, bound, remedy string) {
	r.faults = append(r.faults, Fault{File: r.file, Line: line, Key: key, Bound: bound, Remedy: remedy})
}

func (r *reader) node(key string, from ast.Node) *node {
	n := &node{kind: empty, file: r.file, line: firstLine(from)}
	switch from := from.(type) {
	case *ast.MappingNode:
		n.kind = mapping
		for _, v := range from.Values {
			r.entry(key, n, v)
		}
	case *ast.MappingValueNode:
		n.kind = mapping
		r.entry(key, n, from)
	case *ast.SequenceNode:
		n.kind = list
		for i, v := range from.Values {
			n.items = append(n.items, r.node(item(key, i), v))
		}
	case *ast.StringNode:
		n.kind, n.scalar = text, from.Value
	case *ast.LiteralNode:
		n.kind, n.scalar = text, from.Value.Value
	case *ast.BoolNode:
		n.kind, n.scalar = boolean, from.GetToken().Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.kind, n.scalar = number, from.GetToken().Value
	case *ast.NullNode, *ast.CommentGroupNode, nil:
	default: // anchors, aliases, tags
		n.kind = broken
		r.fault(n.line, key, "must be plain YAML, is "+article(kind(from.Type().YAMLName())), "write it out")
	}
	return n
}

func (r *reader) entry(parent string, into *node, from *ast.MappingValueNode) {
	line := firstLine(from)
	name, ok := from.Key.(*ast.StringNode)
	if !ok {
		r.fault(line, child(parent, from.Key.GetToken().Value), "must be a plain word", "put it into quotes or write it out")
		return
	}
	key := child(parent, name.Value)
	if old := into.entry(name.Value); old != nil {
		r.fault(line, key, "stands already on line "+strconv.Itoa(old.line), "keep one of them")
		return
	}
	into.entries = append(into.entries, entry{key: name.Value, line: line, file: r.file, value: r.node(key, from.Value)})
}

// firstLine is the line on which a node begins. The token of a map is its first colon, so its first key counts instead.
func firstLine(n ast.Node) int {
	switch n := n.(type) {
	case *ast.MappingNode:
		if len(n.Values) > 0 {
			return firstLine(n.Values[0])
		}
		return lineOf(n.Start)
	case *ast.MappingValueNode:
		return lineOf(n.Key.GetToken())
	case nil:
		return 0
	}
	return lineOf(n.GetToken())
}

func lineOf(t *token.Token) int {
	if t == nil || t.Position == nil {
		return 0
	}
	return t.Position.Line
}

// printable makes a parser's message fit one line and a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

func article(k kind) string {
	switch k {
	case text, empty, boolean:
		return string(k)
	case "anchor", "alias":
		return "an " + string(k)
	}
	return "a " + string(k)
}
