package house_test

import (
	"go/ast"
	"log/slog"
	"strconv"
	"testing"
)

// slog has three keys of its own in each line. An attribute under one of them stands there a second time: what reads JSON takes
// the later one, or refuses the line, and under systemd, which has the time itself, the daemon leaves out both.
func TestLogKeysAreNotThoseOfTheLine(t *testing.T) {
	logs := map[string]bool{"Debug": true, "Info": true, "Warn": true, "Error": true, "Log": true, "With": true}
	for _, s := range parsed(t) {
		if s.isTest() {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); !ok || !logs[f.Sel.Name] {
				return true
			}
			for _, arg := range call.Args {
				text, ok := arg.(*ast.BasicLit)
				if !ok {
					continue
				}
				switch key, _ := strconv.Unquote(text.Value); key {
				case slog.TimeKey, slog.LevelKey, slog.MessageKey:
					t.Errorf("%s: the log's key %q: a line has that already", s.at(arg), key)
				}
			}
			return true
		})
	}
}
