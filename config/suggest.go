package config

import (
	"fmt"
	"reflect"
	"strings"
)

// suggest is the remedy for an unknown key: a similar key of the same section, the same key in another section, or else the list of
// known keys.
func (d *decoder) suggest(parent, key string, t reflect.Type) string {
	known := keys(t)
	best, least := "", max(2, len(key)/3)+1
	for _, k := range known {
		if n := distance(key, k); n < least {
			best, least = k, n
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", child(parent, best))
	}
	if at := find("", key, d.root); at != "" {
		return fmt.Sprintf("did you mean %q?", at)
	}
	return "remove it; known here: " + strings.Join(known, ", ")
}

func keys(t reflect.Type) []string {
	var out []string
	for f := range t.Fields() {
		if k := name(f); k != "" {
			out = append(out, k)
		}
	}
	return out
}

// find looks for a key of exactly this name in all sections.
func find(parent, key string, t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		return find(parent+"[]", key, t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			k := name(f)
			if k == "" {
				continue
			}
			at := strings.TrimPrefix(parent+"."+k, ".")
			if k == key {
				return at
			}
			if at := find(at, key, f.Type); at != "" {
				return at
			}
		}
	}
	return ""
}

// distance counts the letters to insert, remove, change or swap with the next one to make b of a
// (optimal string alignment).
func distance(a, b string) int {
	if max(len(a), len(b)) > 64 {
		return 64 // no key is that long
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = min(row[j]+1, last[j+1]+1, last[j]+change)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
